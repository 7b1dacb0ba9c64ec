// turns_executor.h - a device that computes on the thread which waits for it: the host's own cores,
// real (cpu_executor) or emulated (host_emulator). Copies go on beside.
//
// Two queues in order, the device's and that of experts which are left to the CPU; the latter's
// turn comes when nothing of the device can run. Experts at the front that can run go in one
// parallel loop. What has been copied is noticed when a turn ends, so the next piece sets out then.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/execute/executor.h"

namespace moorage::core {

class turns_executor : public executor {
public:
    void attention(uint32_t layer, const pass &tokens) override;
    void expert_on_gpu(const expert_work &work) override;
    void expert_on_cpu(const expert_work &work) override;
    bool predicts() const final { return true; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void move_top(const expert_work &work, uint64_t to_row) override;
    void head(uint32_t tokens) override;
    void expect(uint32_t transfer) final { arrived_[transfer] = 0; }
    void arrived(uint32_t transfer) final { arrived_[transfer] = 1; }
    completion wait() final;
    busy_ns busy() const final { return busy_; }
    bool takes_turns() const final { return true; }

protected:
    struct operation {
        event_kind kind;
        expert_work work;  // of an expert; page MOORAGE_NONE else
        uint32_t layer;
        uint64_t to_row = 0;  // of a move
        uint64_t price_ns = 0;
    };

    // transfers_max: ids of transfers are below it.
    explicit turns_executor(uint32_t transfers_max) : arrived_(transfers_max, 0) {}

    // What an operation will take, where that is known before; `tokens` of a pass or of a head.
    virtual uint64_t price_of_pass(event_kind, const pass &) const { return 0; }
    virtual uint64_t price_of_head(uint32_t) const { return 0; }
    virtual uint64_t price_of_expert(event_kind, const expert_work &) const { return 0; }
    // Time now, of the clock that policies read.
    virtual uint64_t time_ns() const = 0;
    // One turn: experts of one kind, or one operation of another. Time passes.
    virtual void compute(std::span<const operation> experts) = 0;
    virtual void compute(const operation &one) = 0;
    // A turn has ended, for a timeline.
    virtual void computed(const operation &, uint64_t /*begin_ns*/) {}
    // A piece that has been copied, if there is one.
    virtual bool take_piece(completion &out) = 0;
    // Nothing can run before one has been. Requires: one is under way.
    virtual void wait_for_piece() = 0;
    // wait() returns: time is what it is now.
    virtual void returns() {}

    uint32_t layer_ = 0;
    busy_ns busy_;

private:
    bool runnable(const operation &next) const {
        return next.work.transfer == MOORAGE_NONE || arrived_[next.work.transfer];
    }
    void queue(event_kind kind, uint32_t layer, uint64_t price_ns);
    void take_turn(std::deque<operation> &from);
    void gather(std::deque<operation> &from);

    std::deque<operation> device_queue_, cpu_queue_;
    std::deque<completion> done_;  // computed, not yet handed out
    std::vector<operation> turn_;
    std::vector<uint8_t> arrived_;
};

}  // namespace moorage::core

// host_emulator.h - the CPU executor in virtual time: one set of cores that computes what is on GPU
// and CPU in turn, and a thread beside it that copies.
//
// For profiles whose device is the host itself (device_profile::is_host). It follows cpu_executor
// move by move: experts that can run go in one parallel loop, which pays its entry once; what has
// been copied is noticed when the loop ends, so the next piece sets out then; experts left on the
// CPU come when nothing of the device can run. A piece that sets out takes load_ns from computing,
// in which it is copied at full speed. While a copy and a computation are both under way
// each keeps its share of its own speed (compute_share, copy_share). Where all experts fit nothing
// is copied at all. Deterministic; whole nanoseconds, ends rounded up.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/execute/cost_model.h"
#include "core/execute/emulator.h"
#include "core/execute/executor.h"

namespace moorage::core {

class host_emulator final : public executor {
public:
    // transfers_max: ids of transfers are below it. `costs` is borrowed, `sink` may be null.
    // in_place: every expert is where it is computed; loads copy nothing.
    host_emulator(const cost_model &costs, uint32_t transfers_max, bool in_place, span_sink *sink)
        : costs_(costs), sink_(sink), in_place_(in_place), arrived_(transfers_max, 0) {}

    const uint64_t *clock() const override { return &now_; }
    void attention(uint32_t layer, const pass &tokens) override;
    void expert_on_gpu(const expert_work &work) override;
    void expert_on_cpu(const expert_work &work) override;
    bool predicts() const override { return true; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void move_top(const expert_work &work, uint64_t to_row) override;
    void head(uint32_t tokens) override;
    void expect(uint32_t transfer) override { arrived_[transfer] = 0; }
    void arrived(uint32_t transfer) override { arrived_[transfer] = 1; }
    void send(const link_piece &piece) override;
    bool idle(uint32_t link) const override { return !links_[link].busy; }
    completion wait() override;
    busy_ns busy() const override { return busy_; }
    bool virtual_time() const override { return true; }
    bool takes_turns() const override { return true; }
    bool unified_memory() const override { return in_place_; }

private:
    struct operation {
        event_kind kind;
        expert_work work;  // of an expert; page MOORAGE_NONE else
        uint64_t duration_ns;
    };
    struct link_state {
        bool busy = false, copied = false;  // copied: not handed out yet
        uint32_t page = MOORAGE_NONE;
        uint64_t started_ns = 0, ended_ns = 0;
        double left_ns = 0;  // of copying alone
    };

    bool runnable(const operation &next) const {
        return next.work.transfer == MOORAGE_NONE || arrived_[next.work.transfer];
    }
    void compute(std::deque<operation> &from);
    uint64_t take_loop(std::deque<operation> &from);
    void pass_time(double work_ns);
    link_state *copying();
    void give_up_core();
    void end_copy(link_state &link);
    bool take_piece(completion &out);

    const cost_model &costs_;
    span_sink *sink_;
    bool in_place_;
    uint64_t now_ = 0;
    busy_ns busy_;
    std::deque<operation> gpu_queue_, cpu_queue_;
    std::deque<completion> done_;  // computed, not yet handed out
    link_state links_[link_count];
    std::vector<uint8_t> arrived_;
    uint32_t layer_ = 0;
};

}  // namespace moorage::core

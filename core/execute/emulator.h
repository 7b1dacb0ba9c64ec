// emulator.h - the executor in virtual time: discrete events over queues, deterministic to the
// byte.
//
// Actors: the GPU stream, the copy engine of each direction, the CPU pool, the disk. Each has at
// most one event pending. Copies, CPU experts and the disk use host memory together: while the sum
// of what they could read alone exceeds the node's ceiling, all are slowed by the same factor (a
// DRAM controller serves them alike; measured in FreeToken#444: 110 + 26 alone, 120 together). The
// constant part of a transfer or of a CPU expert uses no bandwidth. Time is whole nanoseconds; an
// end that falls between two is rounded up. Events at the same time are taken in the order of the
// actors below.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/execute/cost_model.h"
#include "core/execute/executor.h"

namespace moorage::core {

// Sees every operation of an emulated run when it ends, for a timeline.
class span_sink {
public:
    virtual ~span_sink() = default;
    enum track { gpu, h2d, d2h, cpu, disk };
    // kind: "attention", "expert", "prediction", "move", "head", "copy", "read"; page MOORAGE_NONE
    // where there is none.
    virtual void span(track where, const char *kind, uint32_t layer, uint32_t page,
                      uint64_t start_ns, uint64_t end_ns) = 0;
};

// An executor in virtual time whose clock may be that of several: then whoever has the earliest
// event due() moves it there and calls step().
class timed_executor : public executor {
public:
    // `clock` is borrowed; null: its own.
    explicit timed_executor(uint64_t *clock) : now_(clock ? *clock : own_now_) {}
    timed_executor(const timed_executor &) = delete;

    const uint64_t *clock() const final { return &now_; }
    bool virtual_time() const final { return true; }
    virtual uint64_t due() const = 0;  // MOORAGE_NEVER: nothing is under way
    // The clock was moved for somebody else's event: the time until now was as it is. Before work
    // is queued.
    virtual void catch_up() = 0;
    // Takes the event that is due now; most complete something.
    virtual std::optional<completion> step() = 0;
    completion wait() override;

private:
    uint64_t own_now_ = 0;

protected:
    uint64_t &now_;
};

class emulator final : public timed_executor {
public:
    // transfers_max: ids of transfers are below it. `costs` is borrowed, `sink` may be null.
    emulator(const cost_model &costs, uint32_t transfers_max, span_sink *sink,
             uint64_t *clock = nullptr);

    void attention(uint32_t layer, const pass &tokens) override;
    void expert_on_gpu(const expert_work &work) override;
    void expert_on_cpu(const expert_work &work) override;
    bool predicts() const override { return true; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void move_top(const expert_work &work, uint64_t to_row) override;
    void head(uint32_t tokens) override;
    void expect(uint32_t transfer) override { arrived_[transfer] = 0; }
    void arrived(uint32_t transfer) override;
    void send(const link_piece &piece) override;
    bool idle(uint32_t link) const override { return !flows_[link].busy; }
    uint64_t due() const override { return due_[first()]; }
    void catch_up() override { account(); }
    std::optional<completion> step() override;
    completion wait() override;
    busy_ns busy() const override { return busy_; }
    uint64_t stall_ns() const override { return busy_.stall; }
    void charge(time_causes &to) override {
        account();
        charged_ = &to;
    }
    bool unified_memory() const override { return costs_.hardware().device.unified_memory; }
    // What the GPU has been given and not done.
    uint64_t gpu_backlog_ns() const { return gpu_backlog_ns_; }

    uint64_t events() const { return events_; }

private:
    // Written and read member by member: a copy in wider pieces waits for the members' stores.
    struct operation {
        event_kind kind;
        uint8_t segments;
        uint32_t tag, transfer, page, layer;
        uint64_t duration_ns;
    };
    // A user of host memory: first a constant part, then bytes at a rate.
    struct flow {
        bool busy = false, flowing = false;
        uint32_t page = MOORAGE_NONE;
        uint64_t constant_end = 0, started = 0, updated = 0;
        double left_bytes = 0, alone_rate = 0, rate = 0;  // bytes, bytes per ns
    };
    // Links first, by their numbers.
    enum actor : uint32_t {
        h2d = link_h2d,
        d2h = link_d2h,
        disk = link_disk,
        cpu = 3,
        gpu = 4,
        actor_count = 5
    };

    uint32_t first() const {  // actor with the earliest event
        uint32_t first = 0;
        for (uint32_t which = 1; which < actor_count; ++which)
            first = due_[which] < due_[first] ? which : first;
        return first;
    }
    // Its event; whether that completes something, which is then written to `done`.
    bool take(uint32_t which, completion &done);
    // Gives the time since the last change to its cause.
    void account() {
        if (now_ != accounted_ns_) account_until_now();
    }
    void account_until_now();
    void account_gpu();
    uint64_t attention_ns(const pass &tokens);
    void queue(event_kind kind, uint32_t layer, uint64_t duration_ns);
    void queue(event_kind kind, const expert_work &work, uint64_t duration_ns);
    void queued();
    void start_gpu();
    void start_cpu();
    void start_flow(actor which, uint64_t constant_ns, double bytes, double rate);
    void begin_to_flow(uint32_t which);
    void share_memory();
    void finish_gpu(completion &done);
    void finish_flow(actor which, completion &done);

    const cost_model &costs_;
    const uint64_t sync_ns_;
    const double memory_rate_, link_rates_[link_count];  // bytes per ns
    span_sink *sink_;
    // The price of attention is that of a pass: all its layers ask for the same.
    uint64_t attention_tokens_ = MOORAGE_NEVER, attention_context_ = 0, attention_ns_ = 0;
    uint64_t events_ = 0, gpu_backlog_ns_ = 0;
    std::array<uint64_t, actor_count> due_;  // of each actor's event; MOORAGE_NEVER: none
    std::array<flow, gpu> flows_;
    uint32_t flowing_ = 0;  // of them
    busy_ns busy_;
    uint64_t accounted_ns_ = 0;
    uint64_t overhead_ns_[8];         // of each event_kind
    uint64_t launched_until_ns_ = 0;  // of the operation that runs: then it computes

    // Both queues are rings that grow when they are full.
    template <class T>
    struct ring {
        std::vector<T> data = std::vector<T>(64);
        size_t head = 0, count = 0;
        T &front() { return data[head]; }
        T &push() {  // room for one more, to be filled in
            if (count == data.size()) grow();
            return data[(head + count++) & (data.size() - 1)];
        }
        void grow();
        void pop() { head = (head + 1) & (data.size() - 1), --count; }
    };
    ring<operation> gpu_queue_;    // front: running, or waiting for its transfer
    ring<expert_work> cpu_queue_;  // front: running
    bool gpu_running_ = false;
    uint64_t gpu_started_ = 0, gpu_waiting_since_ = 0;
    uint32_t layer_ = 0;
    std::vector<uint8_t> arrived_;
};

}  // namespace moorage::core

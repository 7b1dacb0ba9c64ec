// emulator.h - the executor in virtual time: discrete events over queues, deterministic to the
// byte.
//
// Actors: the GPU stream, the copy engine of each direction, the CPU pool, the disk. Each has at
// most one event pending. Copies, CPU experts and the disk use host memory together
// (memory_flows.h); a busy link slows the GPU (work_pace.h). Time is whole nanoseconds. Events at
// the same time are taken in the order of the actors: links by their numbers, the CPU, the GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "core/execute/emulated_prices.h"
#include "core/execute/memory_flows.h"
#include "core/execute/stream_executor.h"
#include "core/execute/timed_executor.h"
#include "core/execute/work_pace.h"

namespace moorage::core {

class emulator final : public stream_executor<emulator, timed_executor> {
public:
    // transfers_max: ids of transfers are below it. `costs` is borrowed, `sink` may be null.
    emulator(const cost_model &costs, uint32_t transfers_max, span_sink *sink,
             uint64_t *clock = nullptr);

    bool predicts() const override { return true; }
    void send(const link_piece &piece) override;
    uint64_t due() const override { return std::min(device_.due_ns, flows_.due()); }
    void catch_up() override { settle(); }
    std::optional<completion> step() override;
    completion wait() override;
    bool unified_memory() const override { return costs_.hardware().device.unified_memory; }
    // Work that the GPU has been given and has not done, in ns.
    uint64_t device_backlog_ns() const { return device_.backlog_ns; }

    uint64_t events() const { return events_; }

private:
    template <class, class>
    friend class stream_executor;

    uint64_t price_of_attention(const pass &tokens);
    uint64_t price_of_head(uint32_t tokens) {
        drawing_ns_ = costs_.draw_ns(tokens);
        return costs_.head_ns(tokens) + drawing_ns_;
    }
    uint64_t price_of(event_kind kind, const expert_work &work) const {
        return price_of_work(costs_, kind, work);
    }
    void queued(stream &stream);
    void opened() {
        if (!is_blocking() && !device_.running() && !device_.queue.empty()) start(device_, now_);
    }
    void settle() {
        if (now_ != accounted_ns()) settle_until_now();
    }

    // Takes the next event. Returns whether it completes something, which is then written to
    // `done`.
    bool take_event(completion &done);
    void settle_until_now();
    void start(stream &stream, uint64_t now_ns);
    void start_cpu(uint64_t handover_ns);  // 0 if the pool was busy
    void finish(stream &stream, completion &done);
    bool take_flow(completion &done);
    void finish_cpu(completion &done);

    const cost_model &costs_;
    const uint64_t sync_ns_;
    // Whether computing waits for loads because it does not go on beside them. Work then begins in
    // take_event(). Only with a clock of its own.
    bool is_blocking() const { return overlap_ < load_overlap::layer; }
    bool waits_for_link(const operation &work);
    const load_overlap overlap_;
    const double link_rates_[link_count];  // bytes per ns
    // The price of attention is equal for all layers of a pass, so it is kept.
    uint64_t attention_tokens_ = MOORAGE_NEVER, attention_context_ = 0, attention_sequences_ = 0;
    uint64_t attention_ns_ = 0;
    uint64_t drawing_ns_ = 0;  // part of the head's price: drawing by the host
    uint64_t events_ = 0;
    memory_flows flows_;
    const work_pace pace_;
    uint32_t pages_[link_count] = {};  // pages of the pieces under way
    uint64_t launching_ns_[8];         // of each event_kind
};

}  // namespace moorage::core

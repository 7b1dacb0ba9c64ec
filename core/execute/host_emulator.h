// host_emulator.h - the CPU executor in virtual time. One set of cores computes the work of GPU and
// CPU in turn, and a thread beside it copies.
//
// For profiles whose device is the host itself (device_profile::is_host). It follows cpu_executor
// step by step:
//   - Experts that can run go in one parallel loop, which pays its entry once.
//   - A finished copy is noticed when the loop ends, so the next piece sets out then.
//   - Experts left on the CPU come when nothing of the device can run.
//   - A layer step takes step_ns of software, and a piece that sets out takes load_ns. The tokens
//     of a pass are drawn from its logits (logits_per_s). Nothing is computed meanwhile, and copies
//     have full speed.
//   - While a copy and a computation are both under way, each keeps its share of its own speed
//     (compute_share, copy_share).
//   - A copy begins wake_ns after its piece was sent, or when nothing else can be done: then all
//     threads copy.
// If all experts fit, nothing is copied at all. Deterministic. Whole nanoseconds, ends rounded up.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "core/execute/cost_model.h"
#include "core/execute/turns_executor.h"

namespace moorage::core {

class host_emulator final : public turns_executor<host_emulator> {
public:
    // transfers_max: ids of transfers are below it. `costs` is borrowed, `sink` may be null.
    // in_place: every expert is in the place where it is computed, and loads copy nothing.
    host_emulator(const cost_model &costs, uint32_t transfers_max, bool in_place, span_sink *sink)
        : turns_executor(transfers_max, sink), costs_(costs), in_place_(in_place) {}

    const uint64_t *clock() const override { return &now_; }
    void begin(const pass &) override {
        if (const uint32_t positions = std::exchange(positions_to_draw_, 0))
            pass_software_time(costs_.draw_ns(positions));
    }
    void head(uint32_t tokens) override {
        positions_to_draw_ = tokens;
        turns_executor::head(tokens);
    }
    void attention(uint32_t layer, const pass &tokens) override {
        pass_software_time(costs_.hardware().device.step_ns);
        turns_executor::attention(layer, tokens);
    }
    void send(const link_piece &piece) override;
    bool virtual_time() const override { return true; }
    bool unified_memory() const override { return in_place_; }

private:
    template <class, class>
    friend class stream_executor;
    friend turns_executor;
    struct link_state {
        bool busy = false, copied = false;  // copied: finished, but not handed out yet
        uint32_t page = MOORAGE_NONE;
        uint64_t started_ns = 0, ended_ns = 0;
        double wake_left_ns = 0, copy_left_ns = 0;  // wake: until copying begins; copy: of
                                                    // copying alone
    };

    uint64_t price_of_attention(const pass &tokens) const {
        return costs_.attention_ns(tokens.tokens.size(), tokens.context(), tokens.sequences()) +
               costs_.sync_ns();
    }
    uint64_t price_of_head(uint32_t tokens) const { return costs_.head_ns(tokens); }
    // The device's figures hold for both: the same kernels on the same cores, wherever the weights
    // are.
    uint64_t price_of(event_kind kind, const expert_work &work) const {
        return kind == event_kind::moved
                   ? costs_.move_ns(work.share, work.version)
                   : costs_.gpu_expert_ns(work.tokens, work.share, work.version);
    }
    uint64_t time_ns() const { return now_; }
    void pass_decisions(uint64_t ns) { pass_software_time(ns); }
    void compute(std::span<const operation> experts);
    void compute(const operation &work) { pass_time(static_cast<double>(work.price_ns)); }
    bool take_piece(completion &done);
    void wait_for_piece();
    void pass_time(double work_ns);
    link_state *copying_link();
    void pass_software_time(uint64_t ns);
    void end_copy(link_state &link);

    const cost_model &costs_;
    bool in_place_;
    uint32_t positions_to_draw_ = 0;  // positions of the last pass with logits, still to draw
    uint64_t now_ = 0;
    link_state links_[link_count];
};

}  // namespace moorage::core

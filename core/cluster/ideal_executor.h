// ideal_executor.h - a home whose experts all compute side by side, each in a time of its own, and
// whose other layers take none: what SlimCaching (Section III-C) assumes of users and servers.
#pragma once

#include <vector>

#include "core/execute/emulator.h"

namespace moorage::core {

class ideal_executor final : public timed_executor {
public:
    // Time of one token through an expert, or through all experts of a layer that it holds.
    ideal_executor(uint64_t expert_ns, uint64_t *clock)
        : timed_executor(clock), expert_ns_(expert_ns) {}

    void attention(uint32_t, const pass &) override { add(event_kind::gate, 0, 0, 0); }
    void expert_on_gpu(const expert_work &work) override {
        add(event_kind::gpu_expert, work.tag, expert_ns_ * work.tokens, work.segments);
    }
    // It has one processor; nothing is absent and loaded.
    void expert_on_cpu(const expert_work &work) override {
        add(event_kind::cpu_expert, work.tag, expert_ns_ * work.tokens, work.segments);
    }
    void move_top(const expert_work &work, uint64_t) override {
        add(event_kind::moved, work.tag, 0, work.segments);
    }
    void head(uint32_t) override { add(event_kind::head, 0, 0, 0); }
    void expect(uint32_t) override {}
    void arrived(uint32_t) override {}
    void send(const link_piece &piece) override { add(event_kind::piece, piece.link, 0, 0); }
    bool idle(uint32_t) const override { return true; }
    uint64_t due() const override {
        return waiting_.empty() ? MOORAGE_NEVER : waiting_.front().at_ns;
    }
    void catch_up() override { account(); }
    std::optional<completion> step() override;
    busy_ns busy() const override { return busy_; }
    void charge(time_causes &to) override {
        account();
        charged_ = &to;
    }
    bool unified_memory() const override { return false; }

private:
    struct event {
        uint64_t at_ns, order;
        completion what;
    };
    static bool later(const event &one, const event &other) {
        return one.at_ns != other.at_ns ? one.at_ns > other.at_ns : one.order > other.order;
    }
    void add(event_kind kind, uint32_t tag, uint64_t duration_ns, uint8_t segments);

    // Until now it computed if anything was on its way; else it waited for others.
    void account() {
        (*charged_)[waiting_.empty() ? cause::away : cause::compute] += now_ - accounted_ns_;
        accounted_ns_ = now_;
    }

    uint64_t accounted_ns_ = 0;
    uint64_t expert_ns_;
    std::vector<event> waiting_;  // a heap
    uint64_t order_ = 0;
    busy_ns busy_;
};

}  // namespace moorage::core

// ideal_executor.h - a home whose experts all compute side by side, each in its own time, and whose
// other layers take no time. SlimCaching (Section III-C) assumes this of users and servers.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/execute/stream_executor.h"
#include "core/execute/timed_executor.h"

namespace moorage::core {

class ideal_executor final : public stream_executor<ideal_executor, timed_executor> {
public:
    // expert_ns: time of one token through an expert, or through all experts of a layer that the
    // home holds.
    ideal_executor(uint64_t expert_ns, uint32_t transfers_max, uint64_t *clock)
        : stream_executor(transfers_max, nullptr, clock), expert_ns_(expert_ns) {}

    // Any work that takes so long. It completes (device_expert) with the tag.
    void compute(uint32_t tag, uint64_t ns) { add({event_kind::device_expert, tag, ns, 0}); }
    void send(const link_piece &piece) override { add({event_kind::piece, piece.link, 0, 0}); }
    uint64_t due() const override {
        return waiting_.empty() ? MOORAGE_NEVER : waiting_.front().at_ns;
    }
    void catch_up() override { settle(); }
    // Completions in the order of their times.
    std::optional<completion> step() override {
        settle();
        std::pop_heap(waiting_.begin(), waiting_.end(), later);
        const completion done = waiting_.back().done;
        waiting_.pop_back();
        return done;
    }
    bool unified_memory() const override { return false; }

private:
    template <class, class>
    friend class stream_executor;
    struct event {
        uint64_t at_ns, order;
        completion done;
    };
    static bool later(const event &left, const event &right) {
        return left.at_ns != right.at_ns ? left.at_ns > right.at_ns : left.order > right.order;
    }
    // It has one processor, for GPU and CPU experts alike.
    uint64_t price_of(event_kind kind, const expert_work &work) const {
        return kind == event_kind::moved ? 0 : expert_ns_ * work.tokens;
    }
    // Nothing waits, because nothing is absent and loaded.
    void queued(stream &stream) {
        const operation &next = stream.queue.front();
        add({next.kind, next.tag, next.price_ns, next.segments});
        stream.pop();
    }
    void add(const completion &done) {
        waiting_.push_back({now_ + done.duration_ns, order_++, done});
        std::push_heap(waiting_.begin(), waiting_.end(), later);
        busy_.gpu += done.duration_ns;
    }
    // Until now it computed if any work was under way. Otherwise it waited for others.
    void settle() { account(waiting_.empty() ? remote_wait_cause_ : cause::compute, now_); }

    uint64_t expert_ns_;
    std::vector<event> waiting_;  // a heap
    uint64_t order_ = 0;
};

}  // namespace moorage::core

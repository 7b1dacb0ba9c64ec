// turns_executor.h - a device that computes on the thread which waits for it: the host's own cores,
// real (cpu_executor) or emulated (host_emulator). Copies run at the same time.
//
// Experts for the CPU have their turn when nothing of the device can run. Experts at the front that
// can run go in one parallel loop. A finished copy is noticed when a turn ends, so the next piece
// sets out then. Besides the functions that stream_executor asks for, a device has
//
//   time_ns()                                 now, of the clock that policies read
//   compute(experts), compute(operation)      a turn: time passes
//   take_piece(completion &)                  one that has been copied, if there is one
//   wait_for_piece()                          nothing can run before one has been
//   returns()                                 wait() does: time is what it is now
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/execute/stream_executor.h"

namespace moorage::core {

template <class Device>
class turns_executor : public stream_executor<Device> {
    using base = stream_executor<Device>;

public:
    bool predicts() const final { return true; }
    void policies_took(uint64_t ns) final {
        self().pass_decisions(ns);
        base::account_policies(ns, self().time_ns());
    }
    completion wait() final {
        completion done{};
        while (!self().take_piece(done) && !take_done(done)) {
            if (!device_.queue.empty() && base::ready(device_.queue.front()))
                take_turn(device_);
            else if (!cpu_.queue.empty())
                take_turn(cpu_);
            else
                wait_for_copy();
        }
        self().returns();
        return done;
    }

protected:
    using base::base;
    using base::busy_;
    using base::cpu_;
    using base::device_;
    friend base;

    void returns() {}
    void pass_decisions(uint64_t) {}  // in real time they have already passed
    // Time that is neither computing nor waiting counts as the host's.
    void settle() { base::account(cause::host, *self().clock()); }

private:
    Device &self() { return static_cast<Device &>(*this); }

    bool take_done(completion &done) {
        if (finished_.empty()) return false;
        done = finished_.front();
        finished_.pop();
        return true;
    }
    void wait_for_copy() {
        const uint64_t begin_ns = self().time_ns();
        base::account(cause::host, begin_ns);
        self().wait_for_piece();
        const uint64_t end_ns = self().time_ns();
        base::account(base::waits_for(), end_ns);
        if (!device_.queue.empty()) busy_.stall += end_ns - begin_ns;
    }
    void take_turn(stream &stream) {
        const uint64_t begin_ns = self().time_ns();
        base::account(cause::host, begin_ns);
        const event_kind kind = stream.queue.front().kind;
        turn_work_.clear();
        if (kind == event_kind::device_expert || kind == event_kind::cpu_expert) {
            // A bottom segment adds to the outputs of its top, so it begins a loop of its own.
            base::gather(stream, turn_work_, [&](const operation &next) {
                return next.segments != last_segment ||
                       std::ranges::none_of(turn_work_, [&](const operation &earlier) {
                           return earlier.page == next.page;
                       });
            });
            self().compute(std::span<const operation>(turn_work_));
        } else {
            turn_work_.push_back(stream.queue.front());
            stream.pop();
            self().compute(turn_work_.front());
        }
        const uint64_t end_ns = self().time_ns(), duration_ns = end_ns - begin_ns;
        const bool on_cpu = kind == event_kind::cpu_expert;
        base::account(on_cpu ? cause::cpu : cause::compute, end_ns);
        (on_cpu ? busy_.cpu : busy_.gpu) += duration_ns;
        for (const operation &work : turn_work_)
            finished_.push() = {kind, work.tag, duration_ns / turn_work_.size(), work.segments};
        base::show(turn_work_.front(), begin_ns, end_ns);
    }

    std::vector<operation> turn_work_;
    ring<completion> finished_;  // computed, not yet handed out
};

}  // namespace moorage::core

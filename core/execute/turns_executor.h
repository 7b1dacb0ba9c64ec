// turns_executor.h - a device that computes on the thread which waits for it: the host's own cores,
// real (cpu_executor) or emulated (host_emulator). Copies run at the same time.
//
// Experts for the CPU have their turn when nothing of the device can run. Experts at the front that
// can run go in one parallel loop. A finished copy is noticed when a turn ends, so the next piece
// sets out then. Besides the functions that stream_executor asks for, a device has
//
//   time_ns()                                 now, of the clock that policies read
//   compute(span of experts), compute(one)    a turn: time passes
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
        completion out{};
        while (!self().take_piece(out) && !take_done(out)) {
            if (!device_.queue.empty() && base::ready(device_.queue.front()))
                take_turn(device_);
            else if (!cpu_.queue.empty())
                take_turn(cpu_);
            else
                rest();
        }
        self().returns();
        return out;
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

    bool take_done(completion &out) {
        if (done_.empty()) return false;
        out = done_.front();
        done_.pop();
        return true;
    }
    void rest() {
        const uint64_t begin_ns = self().time_ns();
        base::account(cause::host, begin_ns);
        self().wait_for_piece();
        const uint64_t end_ns = self().time_ns();
        base::account(base::waits_for(), end_ns);
        if (!device_.queue.empty()) busy_.stall += end_ns - begin_ns;
    }
    void take_turn(stream &from) {
        const uint64_t begin_ns = self().time_ns();
        base::account(cause::host, begin_ns);
        const event_kind kind = from.queue.front().kind;
        turn_.clear();
        if (kind == event_kind::gpu_expert || kind == event_kind::cpu_expert) {
            // A bottom segment adds to the outputs of its top, so it begins a loop of its own.
            base::gather(from, turn_, [&](const operation &next) {
                return next.segments != last_segment ||
                       std::ranges::none_of(turn_, [&](const operation &before) {
                           return before.page == next.page;
                       });
            });
            self().compute(std::span<const operation>(turn_));
        } else {
            turn_.push_back(from.queue.front());
            from.pop();
            self().compute(turn_.front());
        }
        const uint64_t end_ns = self().time_ns(), took_ns = end_ns - begin_ns;
        const bool on_cpu = kind == event_kind::cpu_expert;
        base::account(on_cpu ? cause::cpu : cause::compute, end_ns);
        (on_cpu ? busy_.cpu : busy_.gpu) += took_ns;
        for (const operation &one : turn_)
            done_.push() = {kind, one.tag, took_ns / turn_.size(), one.segments};
        base::show(turn_.front(), begin_ns, end_ns);
    }

    std::vector<operation> turn_;
    ring<completion> done_;  // computed, not yet handed out
};

}  // namespace moorage::core

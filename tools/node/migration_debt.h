// migration_debt.h - how long experts that move between this node and another one may delay the
// calls between them. This is the budget of tools/cluster/network.h, with measured times.
//
//   debt.begin_range(now); ... debt.end_range(now);     // ranges
//   debt.add_call(pairs, sent, now, network);           // calls, whichever side moves what
//   if (now >= debt.next_range_ns()) ...                // the next range
//
// The network time of a call is compared with the time of calls during which no range was under
// way. If calls were delayed by more than `share` of their usual time, no range begins. It begins
// when more calls have come or, if none come, after as long as they would have had to take. Calls
// that are faster than expected count too, so random scatter adds up to nothing. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tools/node/call_times.h"

namespace moorage::core {

class migration_debt {
public:
    // How long to wait for calls, to learn their times.
    static constexpr uint64_t learns_ns = 100'000'000;
    static constexpr uint64_t range_ns_first = 20'000'000, range_ns_max = 1'000'000'000;

    // Above 0; infinite: no limit.
    explicit migration_debt(double share) : share_(share) {}

    // A range is requested, or has come.
    void begin_range(uint64_t now_ns) {
        under_way_ = true;
        ended_ns_ = std::max(ended_ns_, now_ns);
    }
    void end_range(uint64_t now_ns) {
        under_way_ = false;
        ended_ns_ = std::max(ended_ns_, now_ns);
    }
    // A range is given. Nobody reports its arrival; the next one is requested at that time or
    // later.
    void note_given_range(uint64_t now_ns) {
        const uint64_t gap_ns = now_ns - given_ns_;
        if (given_ns_ != 0 && gap_ns < range_ns_max)
            range_ns_ = std::min(range_ns_ + range_ns_ / 8, gap_ns);
        given_ns_ = now_ns;
    }
    // A call that was sent at `sent_ns` has come back at `now_ns`. network_ns: the part in which it
    // neither waited for the other's processor nor was computed.
    void add_call(uint32_t pairs, uint64_t sent_ns, uint64_t now_ns, uint64_t network_ns) {
        called_ns_ = now_ns;
        const bool range_given = given_ns_ != 0 && given_ns_ + range_ns_ > sent_ns;
        if (!under_way_ && !range_given && ended_ns_ <= sent_ns) {
            quiet_.add(pairs, network_ns);
            busy_ns_ += network_ns;
        } else if (quiet_.has_estimate()) {
            const uint64_t usual_ns = quiet_.expected_ns(pairs);
            busy_ns_ += usual_ns;
            delayed_ns_ += static_cast<int64_t>(network_ns) - static_cast<int64_t>(usual_ns);
            delayed_ns_ = std::max<int64_t>(delayed_ns_, 0);
        }
    }
    // When the next range may begin; 0: at once.
    uint64_t next_range_ns() const {
        if (std::isinf(share_) || called_ns_ == 0) return 0;
        if (!quiet_.has_estimate()) return called_ns_ + learns_ns;
        const double above_ns =
            static_cast<double>(delayed_ns_) - share_ * static_cast<double>(busy_ns_);
        if (above_ns <= 0) return 0;
        return called_ns_ + static_cast<uint64_t>(std::min(above_ns / share_, 1e18));
    }
    uint64_t delayed_ns() const { return static_cast<uint64_t>(delayed_ns_); }
    uint64_t busy_ns() const { return busy_ns_; }

private:
    const double share_;
    call_times quiet_;
    bool under_way_ = false;
    uint64_t ended_ns_ = 0;  // of the last range
    uint64_t given_ns_ = 0, range_ns_ = range_ns_first;
    uint64_t called_ns_ = 0, busy_ns_ = 0;
    int64_t delayed_ns_ = 0;
};

}  // namespace moorage::core

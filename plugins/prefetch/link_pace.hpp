// link_pace.hpp - when a load ordered now would arrive, and for which layer that is in time.
//
// For policies that order loads into slots (MOORAGE_PLACE_SLOT), a few at a time and as late as the
// link allows, because a later step knows more. Future steps are expected at the pace of about the
// last 64 steps. Loads are expected to take the time of a single load. Both are wrong if a
// machine's memory is contended; arrived loads correct them. Several links count as one.
#pragma once

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

class link_pace {
public:
    // At most `waiting` loads are under way or wait for the link. `state`: of all pages.
    void activate(size_t waiting, const uint32_t *state) {
        waiting_ = waiting;
        state_ = state;
        under_way_.reserve(waiting);
    }
    void reset() {
        under_way_.clear();
        now_ns_ = window_ns_ = busy_until_ns_ = 0;
        pace_ns_ = 0;
    }

    // Begins the planning of a step. Its demand keeps the link busy for `backlog_ns`. The next
    // layer is routed in `window_ns`.
    void begin(uint64_t now_ns, uint64_t backlog_ns, uint64_t window_ns) {
        if (now_ns_ != 0) pace_ns_ += (static_cast<double>(now_ns - now_ns_) - pace_ns_) / 64;
        now_ns_ = now_ns;
        window_ns_ = window_ns;
        std::erase_if(under_way_, [this](uint32_t page) {
            return (state_[page] & MOORAGE_STATE_IN_FLIGHT) == 0;
        });
        if (under_way_.empty()) busy_until_ns_ = 0;
        busy_until_ns_ = std::max(busy_until_ns_, now_ns + backlog_ns);
    }
    // Whether the link would be idle before the next step if nothing is ordered.
    bool idles() const {
        if (under_way_.empty()) return true;
        const auto busy_ns = static_cast<double>(busy_until_ns_ - now_ns_);
        return under_way_.size() < waiting_ && busy_ns <= pace_ns_;
    }
    // How many layer steps ahead the first one is that a load ordered now reaches in time.
    uint64_t first_in_time(uint64_t load_ns) const {
        const uint64_t arrives_ns = busy_until_ns_ - now_ns_ + load_ns;
        if (arrives_ns <= window_ns_) return 1;
        const auto late_ns = static_cast<double>(arrives_ns - window_ns_);
        return 2 + static_cast<uint64_t>(late_ns / std::max(pace_ns_, 1.0));
    }
    void order(uint32_t page, uint64_t load_ns) {
        under_way_.push_back(page);
        busy_until_ns_ += load_ns;
    }
    bool ordered(uint32_t page) const {
        return std::find(under_way_.begin(), under_way_.end(), page) != under_way_.end();
    }

private:
    size_t waiting_ = 0;
    const uint32_t *state_ = nullptr;
    std::vector<uint32_t> under_way_;
    uint64_t now_ns_ = 0, window_ns_ = 0, busy_until_ns_ = 0;
    double pace_ns_ = 0;
};

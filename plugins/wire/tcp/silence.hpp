// silence.hpp - whether the other end still acknowledges data, by regular looks.
//
// TCP_USER_TIMEOUT does not fit. It ends connections whose receiver keeps its window shut, and a
// full inbox holds its sender back in this way (Linux 6.18: after 2.5 s with 2 s).
#pragma once

#include <cstdint>

namespace tcp_wire {

// The kernel's state of a socket (TCP_INFO).
struct acknowledgements {
    uint32_t unacked;      // segments under way
    uint32_t last_ack_ms;  // since the last acknowledgement
    uint32_t probes;       // of a shut window, unanswered
};

class silence_watch {
public:
    static constexpr uint32_t looks_max = 4;

    // Returns true if data under way was not acknowledged between this look and four before it, or
    // if as many probes have no answer. Data sent right before a look does not count.
    bool silent(const acknowledgements &now, uint64_t now_ms) {
        const bool waits = waited_ && now.unacked > 0 && now.last_ack_ms >= now_ms - looked_ms_ &&
                           now_ms > looked_ms_;
        looks_ = waits ? looks_ + 1 : 0;
        waited_ = now.unacked > 0;
        looked_ms_ = now_ms;
        return looks_ >= looks_max || now.probes >= looks_max;
    }

private:
    uint32_t looks_ = 0;
    uint64_t looked_ms_ = 0;
    bool waited_ = false;
};

}  // namespace tcp_wire

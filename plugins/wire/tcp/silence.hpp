// silence.hpp - whether the other end still acknowledges, by looking every now and then.
//
// TCP_USER_TIMEOUT would not do: it ends connections whose receiver holds its window shut, which is
// how a full inbox keeps its sender back (Linux 6.18: after 2.5 s with 2 s).
#pragma once

#include <cstdint>

namespace tcp_wire {

// What the kernel says of a socket (TCP_INFO).
struct acknowledgements {
    uint32_t unacked;      // segments under way
    uint32_t last_ack_ms;  // since the last acknowledgement
    uint32_t probes;       // of a shut window, unanswered
};

class silence_watch {
public:
    static constexpr uint32_t looks_max = 4;

    // True: what is under way was not acknowledged between this look and four before it, or as many
    // probes have no answer. What begins right before a look is not held against the peer.
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

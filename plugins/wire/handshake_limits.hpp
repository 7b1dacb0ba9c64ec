// handshake_limits.hpp - limits for connections: open ones, begun at one time, begun in a second.
// A bucket of turns fills at handshakes_per_s.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include <moorage/moorage.hpp>

namespace wire {

class handshake_limits {
public:
    explicit handshake_limits(const moorage_wire_limits &limits)
        : limits_(limits), turns_(limits.handshakes_per_s) {}

    // Why no connection may be added to the `open` ones; empty: one more may.
    std::string refusal(size_t open) const {
        if (open < limits_.connections_max) return {};
        return limit(limits_.connections_max, " connections are there, the most it has");
    }
    // Why no handshake may begin now, with `open` connections and `being_made` handshakes. Empty:
    // one may, and it takes a turn.
    std::string refusal(size_t open, size_t being_made) {
        if (std::string reason = refusal(open + being_made); !reason.empty()) return reason;
        if (being_made >= limits_.handshakes_max)
            return limit(limits_.handshakes_max,
                         " connections are being made, the most at one time");
        if (take_turn()) return {};
        return limit(limits_.handshakes_per_s,
                     " connections were made within a second, the most it makes");
    }
    // Returns false if the limit of begun handshakes in a second is reached.
    bool take_turn() {
        const auto now = clock::now();
        const double rate = limits_.handshakes_per_s;
        turns_ += std::chrono::duration<double>(now - counted_).count() * rate;
        turns_ = std::min(turns_, rate);
        counted_ = now;
        if (turns_ < 1) return false;
        turns_ -= 1;
        return true;
    }

private:
    static std::string limit(uint32_t count, const char *words) {
        return std::to_string(count) + words;
    }
    using clock = std::chrono::steady_clock;
    const moorage_wire_limits limits_;
    double turns_;
    clock::time_point counted_ = clock::now();
};

}  // namespace wire

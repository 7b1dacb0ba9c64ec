// handshake_limits.hpp - how many connections may be there, be made at one time and within a
// second: a bucket of tokens that fills at handshakes_per_s.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include <moorage/moorage.hpp>

namespace wire {

class handshake_limits {
public:
    explicit handshake_limits(const moorage_wire_limits &of)
        : of_(of), tokens_(of.handshakes_per_s) {}

    // Why none may begin now, with `open` that are there and `being_made`; empty: one does.
    std::string refuses(size_t open, size_t being_made) {
        const auto now = clock::now();
        const double rate = of_.handshakes_per_s;
        tokens_ += std::chrono::duration<double>(now - counted_).count() * rate;
        tokens_ = std::min(tokens_, rate);
        counted_ = now;
        const auto limit = [](uint32_t count, const char *what) {
            return std::to_string(count) + what;
        };
        if (open + being_made >= of_.connections_max)
            return limit(of_.connections_max, " connections are there, the most it has");
        if (being_made >= of_.handshakes_max)
            return limit(of_.handshakes_max, " connections are being made, the most at one time");
        if (tokens_ < 1)
            return limit(of_.handshakes_per_s,
                         " connections were made within a second, the most it makes");
        tokens_ -= 1;
        return {};
    }

private:
    using clock = std::chrono::steady_clock;
    const moorage_wire_limits of_;
    double tokens_;
    clock::time_point counted_ = clock::now();
};

}  // namespace wire

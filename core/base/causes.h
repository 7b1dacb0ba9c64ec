// causes.h - the causes that the time of a run is divided among. Every moment has exactly one
// cause, so the causes sum to the whole time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moorage::core {

enum class cause : uint8_t {
    compute,  // the device computes
    launch,   // fixed costs of the device's operations: launches and synchronisation
    link,     // nothing can run until a transfer has ended
    disk,     // as link, while the bytes to transfer are still being read from disk
    cpu,      // nothing is left to do until the CPU has computed its experts
    network,  // waiting for a message from another machine, or to one
    away,     // waiting for another machine to compute, and for its queue
    policy,   // policies decide, and nothing else can go on
    host,     // the rest of the real time: hand-overs, control, drawing tokens
    idle      // there is no request
};
inline constexpr size_t cause_count = 10;
inline constexpr std::array<std::string_view, cause_count> cause_names{
    "compute", "launch", "link", "disk", "cpu", "network", "away", "policy", "host", "idle"};

struct time_causes {
    std::array<uint64_t, cause_count> ns{};

    uint64_t &operator[](cause which) { return ns[static_cast<size_t>(which)]; }
    uint64_t operator[](cause which) const { return ns[static_cast<size_t>(which)]; }
    uint64_t sum() const {
        uint64_t total = 0;
        for (const uint64_t cause_ns : ns) total += cause_ns;
        return total;
    }
    time_causes &operator+=(const time_causes &right) {
        for (size_t i = 0; i < cause_count; ++i) ns[i] += right.ns[i];
        return *this;
    }
    friend time_causes operator-(const time_causes &later, const time_causes &earlier) {
        time_causes difference;
        for (size_t i = 0; i < cause_count; ++i) difference.ns[i] = later.ns[i] - earlier.ns[i];
        return difference;
    }
};

}  // namespace moorage::core

// causes.h - what the time of a run goes to. At every moment it is exactly one cause, so they sum
// to the whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moorage::core {

enum class cause : uint8_t {
    compute,  // the device computes
    launch,   // of its operations: fixed costs, launches and synchronisation
    link,     // nothing can run before a transfer has ended
    disk,     // the same, and what it is to carry is still being read
    cpu,      // nothing is left to do until the CPU has computed its experts
    network,  // until a message from another machine is here, or one is there
    away,     // until another machine has computed, and what waits there before
    policy,   // policies decide, and nothing else can go on
    host,     // what is left in real time: hand-overs, control, tokens drawn
    idle      // no request is there
};
inline constexpr size_t cause_count = 10;
inline constexpr std::array<std::string_view, cause_count> cause_names{
    "compute", "launch", "link", "disk", "cpu", "network", "away", "policy", "host", "idle"};

struct time_causes {
    std::array<uint64_t, cause_count> ns{};

    uint64_t &operator[](cause which) { return ns[static_cast<size_t>(which)]; }
    uint64_t operator[](cause which) const { return ns[static_cast<size_t>(which)]; }
    uint64_t sum() const {
        uint64_t all = 0;
        for (const uint64_t one : ns) all += one;
        return all;
    }
    time_causes &operator+=(const time_causes &other) {
        for (size_t i = 0; i < cause_count; ++i) ns[i] += other.ns[i];
        return *this;
    }
    friend time_causes operator-(const time_causes &now, const time_causes &before) {
        time_causes since;
        for (size_t i = 0; i < cause_count; ++i) since.ns[i] = now.ns[i] - before.ns[i];
        return since;
    }
};

}  // namespace moorage::core

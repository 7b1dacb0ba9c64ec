// services.h - what an instance's host pointer leads to: log, clock, random, views, thread-check.
#pragma once

#include <cstdint>
#include <string>

#include "core/host/instance.h"
#include "moorage/host.h"

namespace moorage::core {

// xoshiro256** of Blackman and Vigna, seeded through splitmix64: equal on every machine.
class random_stream {
public:
    // The stream of one policy under one run seed.
    void restart(uint64_t seed, std::string_view policy);
    uint64_t next();

private:
    uint64_t state_[4] = {};
};

// One instance's host: the C struct first, then what its services read. Does not move.
struct service_host {
    moorage_host table{};
    environment where;
    std::string label;       // "cache plugin lru"
    std::string last_error;  // of set_error
    random_stream random;
    bool mapped = false;  // views may be asked for: activate has begun

    service_host(const environment &where, std::string label);
    service_host(const service_host &) = delete;
};

// Marks the calling thread as inside a [load] or [control] call to the instance of this host.
class in_control {
public:
    explicit in_control(const service_host &of);
    ~in_control();
    in_control(const in_control &) = delete;

private:
    const service_host *outer_;
};

}  // namespace moorage::core

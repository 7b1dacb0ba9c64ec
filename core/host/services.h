// services.h - what an instance's host pointer leads to: log, clock, random, views, thread-check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/random.h"
#include "core/host/instance.h"
#include "moorage/host.h"

namespace moorage::core {

// The stream of one policy under one run seed: equal on every machine.
random_stream policy_stream(uint64_t seed, std::string_view policy);

// One instance's host: the C struct first, then what its services read. Does not move.
struct service_host {
    moorage_host table{};
    environment where;
    std::string label;       // "cache plugin lru"
    std::string last_error;  // of set_error
    random_stream random{0, 0};
    bool mapped = false;  // views may be asked for: activate has begun

    service_host(const environment &where, std::string label);
    service_host(const service_host &) = delete;
};

}  // namespace moorage::core

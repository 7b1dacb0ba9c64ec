// services.h - the services behind an instance's host pointer: log, clock, random, views,
// thread-check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/random.h"
#include "core/host/instance.h"
#include "moorage/host.h"

namespace moorage::core {

// The random stream of one policy for one run's seed. Equal on every machine.
random_stream policy_stream(uint64_t seed, std::string_view policy);

// The host of one instance: the C struct first, then the data of its services. Does not move.
struct service_host {
    moorage_host table{};
    environment inputs;
    std::string label;       // "cache plugin lru"
    std::string last_error;  // from set_error
    random_stream random{0, 0};
    bool mapped = false;  // views are available: activate has begun

    service_host(const environment &environment, std::string label);
    service_host(const service_host &) = delete;
};

}  // namespace moorage::core

// home_requests.h - the requests of a home of a cluster: makes the source from its workload.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tools/cluster/arrivals.h"
#include "tools/cluster/cluster_state.h"
#include "core/pipeline/run.h"

namespace moorage::core {

// Tokens of one prefill pass, if the configuration gives none.
inline constexpr uint32_t prefill_default = 512;

inline uint64_t ns_of(double seconds) { return static_cast<uint64_t>(std::llround(seconds * 1e9)); }

// The inputs from which homes are made. All are borrowed.
struct home_inputs {
    const run_config &config;  // has a cluster
    const scene &cluster_scene;
    run_resources &shared;
};

// The share of one device, if several devices share the requests of a home.
struct request_share {
    uint32_t number;  // number of the node; its draws depend on it
    uint32_t part, parts;
};

// Divides `total` by shares that sum to one. Each gets the whole part of its share. The largest
// remainders (ties: the first) get one more, so the sum is `total`.
std::vector<uint64_t> apportioned(uint64_t total, std::span<const double> shares);

// Requires: the home has a workload. `clock` is borrowed. Errors name the workload.
result<std::unique_ptr<arrival_source>> make_requests(const home_inputs &inputs,
                                                      const home_place &place,
                                                      const request_share &share,
                                                      const uint64_t *clock);

}  // namespace moorage::core

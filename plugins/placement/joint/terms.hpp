// terms.hpp - words and values that all files of the joint policy share.
//
// expert   number of an expert among all layers of all models
// server   number of a server; its devices have consecutive numbers
// entry    server through which homes enter; entries have consecutive numbers of their own
// pair     an expert and an entry as one index, expert * entries + entry
// set      experts of one layer that a token misses together
// alone    the expert is the only one that a token misses in its layer
// steps    steps of evaluation: how often a set of experts was looked at; all limits count them
//
// Seconds and calls are per token, as a mean over homes. Square brackets beside an array give its
// shape, for example [experts, servers].
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include <moorage/latency.hpp>

namespace moorage::joint {

inline constexpr uint32_t none = latency_model::none;
inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Devices that would serve an expert, one per server, ascending. If the entry's own server has one,
// only that; otherwise those of all servers that the entry reaches. Empty: none.
using holders = std::span<const uint32_t>;

// Weights of the parts of a placement's cost; placement_state.hpp has the formula.
struct cost_weights {
    double latency = 1;
    double remote_s = 0;
    double load = 0;
    double remote_max = infinity, over_s = 0;
};

}  // namespace moorage::joint

// tune_params.h - parameters as `tune` takes them: "memory.experts", "router.alpha=0:1:0.05",
// "cache.plugin=lru,lfu,echo".
#pragma once

#include <limits>
#include <string>

#include "tools/cluster/cluster_run.h"
#include "tools/comparison/tuning.h"

namespace moorage::tool {

// An error in the command line: exit code 2.
inline core::error usage(std::string text) { return {std::move(text), true}; }

// The range for numbers without a range of their own; NaN: not given.
struct option_range {
    double smallest = std::numeric_limits<double>::quiet_NaN();
    double largest = std::numeric_limits<double>::quiet_NaN();
    double step = std::numeric_limits<double>::quiet_NaN();
};

// The range is the given one, or the one that the policy declares. For memory.experts it is all
// experts of the configuration's model. Errors name the parameter and the nearest known one.
core::result<core::tuned_param> read_param(const std::string &text, const option_range &range,
                                           core::run_resources &shared,
                                           const core::run_config &config);

}  // namespace moorage::tool

// tune_params.h - parameters as `tune` takes them: "memory.experts", "router.alpha=0:1:0.05",
// "cache.plugin=lru,lfu,echo".
#pragma once

#include <limits>
#include <string>

#include "core/cluster/cluster_run.h"
#include "core/report/tuning.h"

namespace moorage::tool {

// What the user said cannot be done.
inline core::error usage(std::string text) { return {std::move(text), true}; }

// Of numbers that say no range themselves; NaN: not given.
struct given_range {
    double from = std::numeric_limits<double>::quiet_NaN();
    double to = std::numeric_limits<double>::quiet_NaN();
    double step = std::numeric_limits<double>::quiet_NaN();
};

// Its range is what was given, what the policy declares, or, of memory.experts, all the experts of
// the configuration's model. Errors name the parameter and the nearest known one.
core::result<core::tuned_param> read_param(const std::string &text, const given_range &range,
                                           core::run_resources &shared,
                                           const core::run_config &config);

}  // namespace moorage::tool

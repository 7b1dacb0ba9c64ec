// run_many.h - several configurations, each run once, for the commands that set runs side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/cluster/cluster_run.h"

namespace moorage::tool {

struct run_many_options {
    const char *what = "run";  // on the progress line
    uint32_t jobs = 0;         // at one time; 0: one per core, and one alone where time is measured
    bool optimum = true;       // count the offline optimum's misses, too
    bool own_routing = true;   // see core::run_options
};

// Reports in the order of the configurations; the first failure in that order is the one returned.
// Scans the configurations' policies.
core::result<std::vector<core::run_report>> run_many(const std::vector<core::run_config> &configs,
                                                     core::run_resources &shared,
                                                     const run_many_options &options);

}  // namespace moorage::tool

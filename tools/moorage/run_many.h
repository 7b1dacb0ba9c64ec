// run_many.h - several configurations, each run once in a process of its own, for the commands that
// set runs side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster_run.h"
#include "core/config/run_config.h"
#include "core/report/failed_rows.h"

namespace moorage::tool {

struct run_many_options {
    const char *what = "run";  // on the progress line
    uint32_t jobs = 0;         // at one time; 0: one per core, and one alone where time is measured
    bool optimum = true;       // count the offline optimum's misses, too
    bool own_routing = true;   // see core::run_options
};

// One of both.
struct run_outcome {
    std::optional<core::run_report> report;
    core::failed_row failure;  // without its label
};

// In the order of the configurations. What they share is opened here, and inherited; figures that
// several need are counted once. Scans the configurations' policies, and fails where that does.
core::result<std::vector<run_outcome>> run_many(const std::vector<core::run_config> &configs,
                                                core::run_resources &shared,
                                                const run_many_options &options);

}  // namespace moorage::tool

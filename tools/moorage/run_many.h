// run_many.h - several configurations, each run once in a process of its own, for the commands that
// set runs side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster_run.h"
#include "core/config/run_config.h"
#include "core/report/failed_rows.h"
#include "tools/moorage/row_file.h"

namespace moorage::tool {

// Where rows are kept as they end, and what makes them what they are.
struct kept_runs {
    row_file *file = nullptr;                        // borrowed; null: nowhere
    std::function<std::string(size_t row)> label;    // of a configuration, for people
    std::function<std::string(size_t row)> written;  // its settings as they were written
};

struct run_many_options {
    const char *what = "run";  // on the progress line
    uint32_t jobs = 0;         // at one time; 0: one per core, and one alone where time is measured
    bool optimum = true;       // count the offline optimum's misses, too
    bool own_routing = true;   // see core::run_options
    kept_runs kept = {};
};

// One of both; neither where the command was interrupted before.
struct run_outcome {
    std::optional<core::run_report> report;
    bool is_offline = false;  // its cache policy sees the future
    bool has_ended = false;
    core::failed_row failure;  // without its label
};

struct run_outcomes {
    std::vector<run_outcome> rows;  // in the order of the configurations
    int signal = 0;                 // that interrupted them; see run_rows()
};

// What they share is opened here, and inherited; figures that several need are counted once. Scans
// the configurations' policies, and fails where that does.
core::result<run_outcomes> run_many(const std::vector<core::run_config> &configs,
                                    core::run_resources &shared, const run_many_options &options);

}  // namespace moorage::tool

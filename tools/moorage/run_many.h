// run_many.h - runs several configurations, each once in a process of its own, for commands that
// compare runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/cluster/cluster_run.h"
#include "core/config/run_config.h"
#include "tools/comparison/failed_rows.h"
#include "tools/moorage/row_file.h"

namespace moorage::tool {

// The file of kept rows, and the identities of rows.
struct kept_runs {
    row_file *file = nullptr;                        // borrowed; null: nowhere
    std::function<std::string(size_t row)> label;    // label of a configuration, for people
    std::function<std::string(size_t row)> written;  // its settings as written
};

struct run_many_options {
    const char *progress_label = "run";  // on the progress line
    uint32_t jobs = 0;                   // at one time; 0: one per core, or one if time is measured
    bool optimum = true;                 // count the offline optimum's misses, too
    bool own_routing = true;             // see core::run_options
    kept_runs kept = {};
};

// Has one of both. Has neither if the command was interrupted before.
struct run_outcome {
    std::optional<core::run_report> report;
    bool is_offline = false;  // its cache policy knows the future
    bool has_ended = false;
    core::failed_row failure;  // without its label
};

struct run_outcomes {
    std::vector<run_outcome> rows;  // in the order of the configurations
    int signal = 0;                 // signal that interrupted them; see run_rows()
};

// Opens the files that the runs share, which their processes inherit. Figures that several runs
// need are computed once. Scans the configurations' policies, and fails if the scan fails.
core::result<run_outcomes> run_many(const std::vector<core::run_config> &configs,
                                    core::run_resources &shared, const run_many_options &options);

}  // namespace moorage::tool

// what_if_rows.h - a configuration's runs with more of each resource.
#pragma once

#include "tools/cluster/cluster_run.h"
#include "tools/comparison/what_if.h"

namespace moorage::tool {

// `base`: the report of the configuration itself. Refuses real time and clusters, and gives the
// remedy.
core::result<core::what_if> ask_what_if(const core::run_config &config,
                                        const core::run_report &base, core::run_resources &shared);

}  // namespace moorage::tool

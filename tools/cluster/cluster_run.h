// cluster_run.h - a run over a cluster: from [cluster], [placement] and the stages to a report.
//
// Every device where requests enter gets the pipeline and the policies of the configuration. So
// does every user with each of its models. One placement decides what they hold.
#pragma once

#include "core/pipeline/run.h"

namespace moorage::core {

// Requires: config.cluster, shared.scan(config.plugin_paths) went well.
result<run_report> run_cluster(const run_config &config, run_resources &shared,
                               const run_options &options);

// Runs either kind, depending on whether the configuration has a [cluster].
result<run_report> run_either(const run_config &config, run_resources &shared,
                              const run_options &options);

}  // namespace moorage::core

// cluster_run.h - a run over a cluster: from [cluster], [placement] and the stages to a report.
//
// Every device that requests enter at, and every user with each of its models, gets the pipeline
// and the policies that the configuration names; one placement decides what they hold.
#pragma once

#include "core/pipeline/run.h"

namespace moorage::core {

// Requires: config.cluster, shared.scan(config.plugin_paths) went well.
result<run_report> run_cluster(const run_config &config, run_resources &shared,
                               const run_options &options);

// Either kind of run, as the configuration has a [cluster] or not.
result<run_report> run_either(const run_config &config, run_resources &shared,
                              const run_options &options);

}  // namespace moorage::core

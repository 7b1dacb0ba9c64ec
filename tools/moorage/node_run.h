// node_run.h - shared by commands that take part in a cluster.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/pipeline/run.h"
#include "tools/moorage/model_run.h"
#include "tools/moorage/parser.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

struct node_run_options {
    std::string cluster, server;  // file and name
    setting_options settings;
};

// Adds --cluster and --server to a command with a model directory.
void add_node_options(parser &command, node_run_options &options);
// The cluster's file as a node on cpu reads it, with [source] model set unless `directory` is
// empty.
core::result<core::run_config> node_config_of(const node_run_options &options,
                                              const std::string &directory,
                                              const core::run_config &defaults = {});
// The configuration of a command with a model directory. It runs alone unless a cluster is named.
core::result<core::run_config> config_of(const model_run_options &model,
                                         const node_run_options &node_options,
                                         const core::run_config &defaults = {});
// core::run() at that server. It serves others meanwhile, if the server's address is free. `calls`
// becomes a line about the work of others, such as "118 of 240 layer steps called other nodes".
core::result<core::run_report> run_at_server(const core::run_config &config,
                                             const node_run_options &node_options,
                                             core::run_resources &shared,
                                             const core::run_options &options, std::string &calls);

}  // namespace moorage::tool

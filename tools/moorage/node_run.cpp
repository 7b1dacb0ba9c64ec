// node_run.cpp - runs a command as a home of a cluster.
#include "tools/moorage/node_run.h"

#include "core/base/log.h"
#include "core/base/text.h"
#include "tools/node/home.h"
#include "tools/node/node_process.h"
#include "core/report/figures.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

using namespace moorage::core;

void add_node_options(parser &command, node_run_options &options) {
    command
        .add_option(
            "--cluster", options.cluster,
            "run as a server of this cluster; other nodes compute the experts that it lacks")
        ->type_name("CLUSTER.toml");
    command.add_option("--server", options.server, "name of this server in [[cluster.servers]]")
        ->type_name("NAME");
}

result<run_config> node_config_of(const node_run_options &options, const std::string &directory,
                                  const run_config &defaults) {
    auto overrides = read_settings(options.settings);
    if (!overrides) return overrides.failure();
    std::vector<override_value> merged;
    if (!directory.empty()) merged.push_back({"source", "model", directory});
    merged.insert(merged.end(), overrides->begin(), overrides->end());
    auto config = load_run_config(options.cluster, merged, read_for::nodes, defaults);
    if (!config) return config.failure();
    config->executor = "cpu";
    config->profile = "host";
    return config;
}

result<run_config> config_of(const model_run_options &model, const node_run_options &node_options,
                             const run_config &defaults) {
    if (node_options.cluster.empty() != node_options.server.empty())
        return error{
            "--cluster and --server go together: the cluster's file, and which of its "
            "servers this is",
            true};
    if (node_options.cluster.empty()) return model_config_of(model, defaults);
    if (!model.config.empty() || !model.settings.executor.empty())
        return error{
            "--cluster is a configuration itself, of nodes on cpu; leave --config and "
            "--executor out",
            true};
    node_run_options combined = node_options;
    combined.settings = model.settings;
    return node_config_of(combined, model.directory, defaults);
}

// "118 of 240 layer steps called other nodes (49.2 %), 131 calls; local experts 71.0 %"
static std::string calls_line(const home_result &done) {
    const caller_figures &calls = done.calls;
    const auto &experts = done.report.experts;
    const uint64_t steps = done.layer_steps;
    std::string line = format(
        "{} of {} layer steps called other nodes ({}), {} calls; local experts {}",
        calls.layers_calling, steps,
        percent(static_cast<double>(calls.layers_calling), static_cast<double>(steps)), calls.calls,
        percent(static_cast<double>(experts.hits), static_cast<double>(experts.requested)));
    if (calls.from_own_disk != 0) line += format(", from own disk {}", calls.from_own_disk);
    if (const uint64_t faults = calls.late + calls.lost + calls.failed + calls.wrong; faults != 0)
        line += format("; calls that went elsewhere: {} late, {} lost, {} refused, {} wrong",
                       calls.late, calls.lost, calls.failed, calls.wrong);
    return line;
}

result<run_report> run_at_server(const run_config &config, const node_run_options &node_options,
                                 run_resources &shared, const run_options &options,
                                 std::string &calls) {
    const auto setup = set_up_node(config, node_options.server, shared);
    if (!setup) return setup.failure();
    auto process = node_process::start(config, shared.policies(), *setup, /*must_listen=*/false);
    if (!process) return process.failure();
    if (!(*process)->trouble().empty())
        log_info(format("serves no calls of others: {}", (*process)->trouble()));
    home_options local_options;
    local_options.own_disk = config.cluster->own_disk;
    if (!config.registry.place.empty()) local_options.slots = setup->slots;
    local_options.on_token = options.on_token;
    local_options.stop = options.stop;
    local_options.after_pass = [&](const caller &remote_caller) {
        (*process)->status().note((*process)->node(), &remote_caller);
    };
    auto done = run_home(config, shared, (*process)->node(), (*process)->pool(), local_options);
    if (!done) return done.failure();
    calls = calls_line(*done);
    return check_report(config, std::move(done->report));
}

}  // namespace moorage::tool

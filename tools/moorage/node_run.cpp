// node_run.cpp - runs a command as a home of a cluster.
#include "tools/moorage/node_run.h"

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/node/home.h"
#include "core/node/node_process.h"
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
    std::vector<override_value> all;
    if (!directory.empty()) all.push_back({"source", "model", directory});
    all.insert(all.end(), overrides->begin(), overrides->end());
    auto config = load_run_config(options.cluster, all, read_for::nodes, defaults);
    if (!config) return config.failure();
    config->executor = "cpu";
    config->profile = "host";
    return config;
}

result<run_config> config_of(const model_run_options &model, const node_run_options &at,
                             const run_config &defaults) {
    if (at.cluster.empty() != at.server.empty())
        return error{
            "--cluster and --server go together: the cluster's file, and which of its "
            "servers this is",
            true};
    if (at.cluster.empty()) return model_config_of(model, defaults);
    if (!model.config.empty() || !model.settings.executor.empty())
        return error{
            "--cluster is a configuration itself, of nodes on cpu; leave --config and "
            "--executor out",
            true};
    node_run_options whole = at;
    whole.settings = model.settings;
    return node_config_of(whole, model.directory, defaults);
}

// "118 of 240 layer steps called other nodes (49.2 %), 131 calls; local experts 71.0 %"
static std::string calls_line(const home_result &done) {
    const caller_figures &calls = done.calls;
    const auto &all = done.report.experts;
    const uint64_t steps = done.layer_steps;
    std::string line = format(
        "{} of {} layer steps called other nodes ({}), {} calls; local experts {}",
        calls.layers_calling, steps,
        percent(static_cast<double>(calls.layers_calling), static_cast<double>(steps)), calls.calls,
        percent(static_cast<double>(all.hits), static_cast<double>(all.requested)));
    if (calls.here != 0) line += format(", from own disk {}", calls.here);
    if (const uint64_t faults = calls.late + calls.lost + calls.failed + calls.wrong; faults != 0)
        line += format("; calls that went elsewhere: {} late, {} lost, {} refused, {} wrong",
                       calls.late, calls.lost, calls.failed, calls.wrong);
    return line;
}

result<run_report> run_at_server(const run_config &config, const node_run_options &at,
                                 run_resources &shared, const run_options &options,
                                 std::string &calls) {
    const auto setup = set_up_node(config, at.server, shared);
    if (!setup) return setup.failure();
    auto process = node_process::start(config, shared.policies(), *setup, /*must_listen=*/false);
    if (!process) return process.failure();
    if (!(*process)->trouble().empty())
        log_info(format("serves no calls of others: {}", (*process)->trouble()));
    home_options how;
    how.own_disk = config.cluster->own_disk;
    if (!config.registry.place.empty()) how.slots = setup->slots;
    how.on_token = options.on_token;
    how.stop = options.stop;
    how.after_pass = [&](const caller &at_work) {
        (*process)->status().note((*process)->node(), &at_work);
    };
    auto done = run_home(config, shared, (*process)->node(), (*process)->pool(), how);
    if (!done) return done.failure();
    calls = calls_line(*done);
    return believed(config, std::move(done->report));
}

}  // namespace moorage::tool

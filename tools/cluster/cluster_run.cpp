// cluster_run.cpp - builds the nodes of a cluster, lets them serve, and reports.
#include "tools/cluster/cluster_run.h"

#include <algorithm>
#include <memory>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/cluster/cluster_emulator.h"
#include "tools/cluster/cluster_figures.h"
#include "tools/cluster/home_requests.h"
#include "tools/cluster/rebalancer.h"
#include "tools/cluster/served_home.h"
#include "tools/placement/placement_stage.h"
#include "tools/placement/zones.h"
#include "tools/placement/plan.h"
#include "tools/placement/scene.h"

namespace moorage::core {

namespace {

class cluster_runner {
public:
    cluster_runner(const run_config &config, run_resources &shared, const run_options &options)
        : config_(config),
          cluster_(*config.cluster),
          shared_(shared),
          options_(options),
          faults_(config.fault_action),
          warnings_(config.warnings) {}

    result<run_report> operator()() {
        for (const auto part : {&cluster_runner::check, &cluster_runner::open_scene,
                                &cluster_runner::make_plan, &cluster_runner::make_nodes})
            if (const status done = (this->*part)(); !done) return done.failure();
        return drive();
    }

private:
    status check();
    status open_scene();
    status make_plan();
    void make_cluster();
    status make_nodes();
    status make_node(const home_place &place, uint32_t part, uint32_t parts);
    result<run_report> drive();
    result<run_report> report_of(const rebalancer &balance);
    status state_facts(run_report &report);
    void describe(json &root) const;
    status fault() const;
    void show_links();

    const run_config &config_;
    const cluster_config &cluster_;
    run_resources &shared_;
    const run_options &options_;
    scene scene_;
    std::unique_ptr<placement_stage> policy_;
    plan plan_;
    fault_log faults_;
    std::vector<std::string> warnings_;  // of each node
    std::unique_ptr<cluster_emulator> emulator_;
    std::vector<std::unique_ptr<served_home>> nodes_;
};

status cluster_runner::check() {
    if (cluster_.duration_s == 0 && cluster_.requests == 0)
        return error{format("{}: when the run ends is not said; give [cluster] duration_s = 600, "
                            "or requests = 100 for so many of each home",
                            cluster_.place),
                     true};
    if (zones_of(cluster_) > 1)
        return error{
            format("{}: {} servers in {} zones are for moorage place; a run has {} at "
                   "most, and no [placement] zone_servers below their number",
                   cluster_.place, cluster_.servers.size(), zones_of(cluster_), zone_servers_max),
            true};
    for (const cluster_server &server : cluster_.servers)
        if (server.host_experts && cluster_.interval_s > 0 && !config_.placement.plugin.empty())
            return error{format("{}: server {} loads experts from its own memory (host_experts), "
                                "so its cache policy decides what it holds, and placement cannot "
                                "change it meanwhile; set [placement] interval_s = 0",
                                server.place, server.name),
                         true};
    return success();
}

status cluster_runner::open_scene() {
    auto built = make_scene(cluster_, config_.file.parent_path());
    if (!built) return built.failure();
    scene_ = std::move(*built);
    for (uint32_t device = 0; device < scene_.cluster.devices(); ++device) {
        const hardware_profile &hardware = scene_.hardware[device];
        if (hardware.id.empty()) continue;
        if (scene_.shapes.size() > 1)
            return error{format("{}: {} models and GPU {}: a run serves one model on GPUs; give "
                                "servers flops instead, or leave one model",
                                cluster_.place, scene_.shapes.size(), scene_.device_names[device]),
                         true};
        if (hardware.device.is_host || hardware.device.unified_memory)
            return error{format("{}: profile {} has no memory of its own for experts; name a GPU "
                                "that has",
                                cluster_.place, hardware.id),
                         true};
    }
    return success();
}

status cluster_runner::make_plan() {
    auto first = make_first_plan(config_, shared_.policies(), scene_);
    if (!first) return first.failure();
    policy_ = std::move(first->policy);
    plan_ = std::move(first->placement);
    return success();
}

void cluster_runner::make_cluster() {
    network_options links;
    links.local_bytes_per_s = cluster_.local_bits_per_s / 8;
    links.migration_bytes_per_s = cluster_.migration_bytes_per_s;
    links.migration_delay_max = cluster_.migration_delay_max;
    links.bucket_ns = ns_of(bucket_s(cluster_));
    cluster_options options;
    options.offers_max = cluster_.offers_max;
    options.bucket_ns = links.bucket_ns;
    emulator_ = std::make_unique<cluster_emulator>(scene_, links, options);
}

// The devices first, so that a GPU's node has its number; then homes that compute side by side.
status cluster_runner::make_nodes() {
    make_cluster();
    const cluster_arrays &cluster = scene_.cluster;
    std::vector<uint32_t> gpus(cluster.servers, 0), next_part(cluster.servers, 0);
    for (uint32_t device = 0; device < cluster.devices(); ++device)
        if (!scene_.hardware[device].id.empty()) ++gpus[cluster.device_server[device]];
    for (uint32_t device = 0; device < cluster.devices(); ++device) {
        if (scene_.hardware[device].id.empty()) continue;
        const uint32_t server = cluster.device_server[device];
        const status done = make_node({device, server, 0}, next_part[server]++, gpus[server]);
        if (!done) return done;
    }
    for (uint32_t home = 0; home < cluster.homes; ++home) {
        if (scene_.home_workload[home] == no_workload) continue;
        if (home < cluster.servers && gpus[home] != 0) continue;
        for (uint32_t model = 0; model < cluster.models; ++model) {
            if (scene_.demand.home_model[size_t{home} * cluster.models + model] <= 0) continue;
            if (const status done = make_node({MOORAGE_NONE, home, model}, 0, 1); !done)
                return done;
        }
    }
    for (const moorage_copy &copy : plan_.copies) emulator_->put(copy);
    return success();
}

// Requests of a home at one of the `parts` devices that share them.
status cluster_runner::make_node(const home_place &place, uint32_t part, uint32_t parts) {
    const auto number = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(std::make_unique<served_home>(
        served_home::surroundings{.inputs = {config_, scene_, shared_},
                                  .events = options_.events,
                                  .emulator = *emulator_,
                                  .faults = faults_,
                                  .warnings = warnings_}));
    return nodes_.back()->make(place, {number, part, parts});
}

status cluster_runner::fault() const {
    if (faults_.fatal().empty()) return success();
    return error{faults_.fatal() +
                 "; the run ended (set [plugins] on_fault = \"replace\" to go on with the host's "
                 "default)"};
}

// A row for each link that carries anything.
void cluster_runner::show_links() {
    emulator_->links().on_sent = [this](uint32_t channel, traffic kind, uint64_t bytes,
                                        uint64_t start_ns, uint64_t end_ns) {
        if (emulator_->links().local(channel)) return;
        const channel_figures figures = emulator_->links().figures(channel);
        const std::string name = endpoint_name(scene_, emulator_->links(), figures.source) +
                                 " to " + endpoint_name(scene_, emulator_->links(), figures.target);
        const uint32_t row = options_.events->track(name, "network");
        options_.events->span(row, kind == traffic::migration ? "migration" : "activations",
                              start_ns, end_ns - start_ns, {{"bytes", bytes}});
    };
}

result<run_report> cluster_runner::drive() {
    rebalancer balance(scene_, *emulator_, policy_.get(), plan_, cluster_);
    if (options_.events) show_links();
    emulator_->begin();
    while (emulator_->next_ns() != MOORAGE_NEVER) {
        if (balance.next_ns() < emulator_->next_ns()) {
            emulator_->idle_until(balance.next_ns());
            if (const status done = balance.act(); !done) return done.failure();
        } else {
            emulator_->step();
            balance.look_again();
        }
        if (const status well = fault(); !well) return well.failure();
    }
    return report_of(balance);
}

result<run_report> cluster_runner::report_of(const rebalancer &balance) {
    cluster_sums sums(scene_, *emulator_, cluster_);
    for (const auto &home : nodes_) sums.add(home->node(), home->line(), home->requests());
    run_report report = sums.report(balance, plan_.policy);
    report.executor = config_.executor;
    report.profile = "cluster";
    report.title = config_.title;
    report.seed = config_.seed;
    report.lossy = nodes_.front()->policies().lossy();
    report.without_advice = {faults_.without_advice().begin(), faults_.without_advice().end()};
    for (std::string &warning : warnings_)
        if (std::ranges::find(report.warnings, warning) == report.warnings.end())
            report.warnings.push_back(std::move(warning));
    describe(*report.config);
    if (const status done = state_facts(report); !done) return done.failure();
    report.faults = {faults_.counts().begin(), faults_.counts().end()};
    return report;
}

// Policies of one name run at each home: their facts are told apart by it.
status cluster_runner::state_facts(run_report &report) {
    for (const auto &home : nodes_) {
        std::map<std::string, std::vector<fact>> stated;
        if (const status done = home->policies().state_facts(stated, &faults_); !done) return done;
        for (auto &[policy, facts] : stated)
            report.facts[format("{} at {}", policy, home->name())] = std::move(facts);
    }
    return success();
}

void cluster_runner::describe(json &root) const {
    root["run"] = {{"executor", config_.executor},
                   {"batch", config_.batch},
                   {"prefill", config_.prefill ? config_.prefill : prefill_default},
                   {"seed", config_.seed}};
    root["cluster"] = {{"servers", scene_.cluster.servers}, {"devices", scene_.cluster.devices()},
                       {"homes", scene_.cluster.homes},     {"models", scene_.model_names},
                       {"duration_s", cluster_.duration_s}, {"requests", cluster_.requests}};
    root["placement"] = {{"plugin", plan_.policy},
                         {"interval_s", policy_ ? cluster_.interval_s : 0},
                         {"window_s", cluster_.window_s}};
    if (!cluster_.plan.empty()) root["placement"]["plan"] = cluster_.plan.filename().string();
    if (policy_)
        for (const auto &[key, value] : policy_->policy().parameters())
            root["placement"][key] = json_of(value);
    nodes_.front()->policies().describe(root);
}

}  // namespace

result<run_report> run_cluster(const run_config &config, run_resources &shared,
                               const run_options &options) {
    watch_calls(config);
    return check_report(config, cluster_runner(config, shared, options)());
}

result<run_report> run_either(const run_config &config, run_resources &shared,
                              const run_options &options) {
    return config.cluster ? run_cluster(config, shared, options) : run(config, shared, options);
}

}  // namespace moorage::core

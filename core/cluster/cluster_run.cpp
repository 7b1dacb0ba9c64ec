// cluster_run.cpp - builds the nodes of a cluster, lets them serve, and reports.
#include "core/cluster/cluster_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/cluster/arrivals.h"
#include "core/cluster/cluster_emulator.h"
#include "core/cluster/cluster_figures.h"
#include "core/cluster/ideal_executor.h"
#include "core/cluster/idle_source.h"
#include "core/cluster/rebalancer.h"
#include "core/pipeline/composition.h"
#include "core/pipeline/policy_set.h"
#include "core/pipeline/timeline_sink.h"
#include "core/placement/activation.h"
#include "core/placement/placement_stage.h"
#include "core/placement/plan.h"
#include "core/placement/scene.h"

namespace moorage::core {

namespace {

constexpr uint32_t prefill_default = 512;

uint64_t ns_of(double seconds) { return static_cast<uint64_t>(std::llround(seconds * 1e9)); }

// Of homes that are not GPUs: only durations that nobody waits for are made from it.
hardware_profile ideal_hardware() {
    hardware_profile made;
    made.device.memory_bytes = uint64_t{1} << 40;
    made.device.memory_bytes_per_s = made.device.flops_per_s = 1e12;
    made.link.h2d_bytes_per_s = made.link.d2h_bytes_per_s = 1e9;
    made.node.memory_bytes_per_s = made.node.cpu_bytes_per_s = made.node.cpu_flops_per_s = 1e9;
    return made;
}

// What a pipeline needs, in the order of construction.
struct served_node {
    cluster_node *node = nullptr;
    std::unique_ptr<cost_model> costs;
    lent_record<moorage_costs> shown;
    std::unique_ptr<source> from;
    arrival_source *requests = nullptr;  // from, where requests enter
    std::unique_ptr<ledger> truth;
    std::unique_ptr<timeline_sink> sink;
    std::unique_ptr<timed_executor> where;
    policy_set policies;
    std::unique_ptr<pipeline> line;
};

class cluster_runner {
public:
    cluster_runner(const run_config &config, run_resources &shared, const run_options &options)
        : config_(config),
          cluster_(*config.cluster),
          shared_(shared),
          options_(options),
          faults_(config.action) {}

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
    status make_nodes();
    emulator *make_device(served_node &made, uint32_t device, uint32_t experts, uint32_t transfers);
    status make_node(uint32_t device, uint32_t home, uint32_t model, uint32_t part, uint32_t parts);
    status make_source(served_node &of, uint32_t home, uint32_t model, uint32_t part,
                       uint32_t parts);
    result<arrival_phase> phase_of(const cluster_workload &workload, uint32_t home, uint32_t model);
    void keep_held(pipeline &line, uint32_t home, uint32_t model) const;
    error nothing_to_prefetch(const std::string &where) const;
    status activate(served_node &of, uint32_t slots, uint32_t buffer, uint32_t callable);
    result<run_report> drive();
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
    std::unique_ptr<cluster_emulator> all_;
    std::deque<drawn_routing> drawn_;
    std::deque<std::vector<arrival>> listed_;
    std::vector<std::unique_ptr<served_node>> nodes_;
};

status cluster_runner::check() {
    if (cluster_.duration_s == 0 && cluster_.requests == 0)
        return error{format("{}: when the run ends is not said; give [cluster] duration_s = 600, "
                            "or requests = 100 for so many of each home",
                            cluster_.place),
                     true};
    for (const cluster_server &one : cluster_.servers)
        if (one.host_experts && cluster_.interval_s > 0 && !config_.placement.plugin.empty())
            return error{format("{}: server {} loads experts from its own memory (host_experts), "
                                "so its cache policy decides what it holds, and placement cannot "
                                "change it meanwhile; set [placement] interval_s = 0",
                                one.place, one.name),
                         true};
    return success();
}

status cluster_runner::open_scene() {
    auto made = make_scene(cluster_, config_.file.parent_path());
    if (!made) return made.failure();
    scene_ = std::move(*made);
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
    const bool given = !cluster_.plan.empty();
    if (config_.placement.plugin.empty() && !given)
        return error{format("{}: no [placement] plugin; name one, for example \"prism\" (moorage "
                            "plugins list), or a plan of moorage place",
                            cluster_.place),
                     true};
    if (!config_.placement.plugin.empty()) {
        auto opened =
            placement_stage::open(config_.placement, shared_.policies(), scene_, config_.seed);
        if (!opened) return opened.failure();
        policy_ = std::move(*opened);
    }
    auto made = given ? read_plan(cluster_.plan, scene_) : policy_->make(scene_, {});
    if (!made) return made.failure();
    plan_ = std::move(*made);
    return success();
}

// The devices first, so that a GPU's node has its number; then homes that compute side by side.
status cluster_runner::make_nodes() {
    const cluster_arrays &of = scene_.cluster;
    network_options links;
    links.local_bytes_per_s = cluster_.local_bits_per_s / 8;
    links.migration_bytes_per_s = cluster_.migration_bytes_per_s;
    links.migration_delay_max = cluster_.migration_delay_max;
    links.bucket_ns = ns_of(bucket_s(cluster_));
    cluster_options how;
    how.offers_max = cluster_.offers_max;
    how.bucket_ns = links.bucket_ns;
    all_ = std::make_unique<cluster_emulator>(scene_, links, how);
    std::vector<uint32_t> gpus(of.servers, 0);
    for (uint32_t device = 0; device < of.devices(); ++device)
        if (!scene_.hardware[device].id.empty()) ++gpus[of.device_server[device]];
    std::vector<uint32_t> made(of.servers, 0);
    for (uint32_t device = 0; device < of.devices(); ++device) {
        const uint32_t server = of.device_server[device];
        if (scene_.hardware[device].id.empty()) continue;
        const status done = make_node(device, server, 0, made[server]++, gpus[server]);
        if (!done) return done;
    }
    for (uint32_t home = 0; home < of.homes; ++home) {
        if (scene_.home_workload[home] == no_workload) continue;
        if (home < of.servers && gpus[home] != 0) continue;
        for (uint32_t model = 0; model < of.models; ++model) {
            if (scene_.demand.home_model[size_t{home} * of.models + model] <= 0) continue;
            const status done = make_node(MOORAGE_NONE, home, model, 0, 1);
            if (!done) return done;
        }
    }
    for (const moorage_copy &copy : plan_.copies) all_->put(copy);
    return success();
}

// The device as an executor in the cluster's time.
emulator *cluster_runner::make_device(served_node &made, uint32_t device, uint32_t experts,
                                      uint32_t transfers) {
    const std::string &name = scene_.device_names[device];
    if (options_.events)
        made.sink = std::make_unique<timeline_sink>(*options_.events, experts, name, name);
    auto time = std::make_unique<emulator>(*made.costs, transfers, made.sink.get(), all_->clock());
    emulator *const device_time = time.get();
    made.where = std::move(time);
    return device_time;
}

error cluster_runner::nothing_to_prefetch(const std::string &where) const {
    return error{format("{}: prefetch {} brings experts from host memory, which {} does not hold; "
                        "set host_experts = true for its server, or prefetch \"none\"",
                        config_.prefetch.place, config_.prefetch.plugin, where),
                 true};
}

// Requests of `home` at one of the `parts` devices that share them.
status cluster_runner::make_node(uint32_t device, uint32_t home, uint32_t model, uint32_t part,
                                 uint32_t parts) {
    const cluster_arrays &of = scene_.cluster;
    const demand_arrays &demand = scene_.demand;
    nodes_.push_back(std::make_unique<served_node>());
    served_node &made = *nodes_.back();
    made.node = &all_->add(device, home, model);
    const bool gpu = device != MOORAGE_NONE;
    const model_shape &shape = scene_.shapes[model];
    made.costs =
        std::make_unique<cost_model>(gpu ? scene_.hardware[device] : ideal_hardware(), shape);
    *made.shown = made.costs->summary(1);
    if (const status done = make_source(made, home, model, part, parts); !done) return done;
    const uint32_t layers = demand.model_layers[model], experts = demand.model_experts[model];
    const uint32_t pages = layers * experts;
    const bool loads = gpu && cluster_.servers[of.device_server[device]].host_experts;
    if (!loads && config_.prefetch.plugin != "none")
        return nothing_to_prefetch(gpu ? scene_.device_names[device] : scene_.home_names[home]);
    const uint64_t fit = gpu ? of.device_bytes[device] / demand.expert_bytes[model] : pages;
    const auto capacity = static_cast<uint32_t>(std::min<uint64_t>(fit, pages));
    const uint32_t slots = loads ? capacity : 0, buffer = loads ? demand.model_top_k[model] : 0;
    const uint32_t transfers = pipeline::transfers_for(experts, buffer, false);
    made.truth = std::make_unique<ledger>(
        layers, experts, std::vector<uint32_t>{slots},
        std::make_unique<arena>(layers, experts, 1, capacity, buffer + pipeline::staging_slots));
    emulator *const device_time = gpu ? make_device(made, device, experts, transfers) : nullptr;
    if (!gpu)
        made.where = std::make_unique<ideal_executor>(
            ns_of(of.home_call_s[size_t{home} * of.models + model]), transfers, all_->clock());
    const status policies = made.policies.make(
        {config_,
         shared_.policies(),
         made.from->offers(),
         "the workload of " + scene_.home_names[home],
         {made.truth->view(), made.shown.lent(), all_->clock(), nullptr, config_.seed, &faults_}});
    if (!policies) return policies;
    // A device does not call itself.
    const uint32_t callable = made.node->servers() - (gpu ? 1 : 0);
    const status active = activate(made, std::max(slots, capacity), buffer, callable);
    if (!active) return active;
    made.line = std::make_unique<pipeline>(pipeline::parts{
        .from = made.from.get(),
        .where = made.where.get(),
        .costs = made.costs.get(),
        .shown = &*made.shown,
        .truth = made.truth.get(),
        .faults = &faults_,
        .policies = made.policies.all(),
        .slots = {capacity},
        .buffer_slots = buffer,
        .transfers_max = transfers,
        .needs = made.policies.needs(),
        .watcher = made.node,
        .routing = {config_.exact_requests, config_.substitution_max, made.policies.lossy()},
        .others = made.node});
    made.node->attach({made.line.get(), made.where.get(), device_time, made.from.get(), loads});
    if (!gpu && !demand.home_holds.empty()) keep_held(*made.line, home, model);
    return success();
}

// What a home has from the start.
void cluster_runner::keep_held(pipeline &line, uint32_t home, uint32_t model) const {
    const demand_arrays &demand = scene_.demand;
    const uint32_t pages = demand.model_layers[model] * demand.model_experts[model];
    const uint8_t *holds = demand.home_holds.data() + size_t{home} * demand.experts();
    for (uint32_t page = 0; page < pages; ++page)
        if (holds[demand.model_first[model] + page]) line.keep(page);
}

status cluster_runner::activate(served_node &of, uint32_t slots, uint32_t buffer,
                                uint32_t callable) {
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = of.from->layers();
    limits.experts = of.from->experts();
    limits.top_k = of.from->top_k();
    limits.tokens_max = of.from->tokens_max();
    limits.requests_max = of.from->streams();
    limits.pools = 1;
    limits.slots = slots;
    limits.buffer_slots = of.from->top_k();
    limits.segments = 1;
    limits.predictions_max = of.from->experts();
    limits.servers = of.node->servers();
    limits.links = link_disk;  // there is none
    limits.transfers_max = pipeline::transfers_for(of.from->experts(), of.from->top_k(), false);
    limits.expert_bytes = of.costs->shape().expert_bytes;
    if (const status done = of.policies.activate(limits); !done) return done;
    return check_composition({config_, of.policies, limits.experts, buffer, callable}, warnings_);
}

// What comes while a workload lasts.
result<arrival_phase> cluster_runner::phase_of(const cluster_workload &workload, uint32_t home,
                                               uint32_t model) {
    arrival_phase phase;
    phase.input_tokens = workload.input_tokens;
    phase.output_tokens = workload.output_tokens;
    if (!workload.trace.empty()) {
        const auto opened = shared_.open(workload.trace);
        if (!opened) return opened.failure();
        if (fits(**opened, scene_.shapes[model])) {
            auto requests = chosen_requests(**opened, workload);
            if (!requests) return requests.failure();
            phase.rows = *opened;
            phase.requests = std::move(*requests);
            return phase;
        }
    }
    if (cluster_.workloads[scene_.home_workload[home]].name != workload.name)
        return error{format("{}: workload {} comes after another and has no trace of {}; only "
                            "workloads with traces can follow",
                            workload.place, workload.name, scene_.model_names[model]),
                     true};
    auto drawn = drawn_routing::from_demand(scene_.demand, home, model, config_.seed);
    if (!drawn) return drawn.failure();
    drawn_.push_back(std::move(*drawn));
    phase.drawn = &drawn_.back();
    if (phase.input_tokens == 0) phase.input_tokens = 1;
    if (phase.output_tokens == 0) phase.output_tokens = 1;
    return phase;
}

status cluster_runner::make_source(served_node &of, uint32_t home, uint32_t model, uint32_t part,
                                   uint32_t parts) {
    const demand_arrays &demand = scene_.demand;
    if (scene_.home_workload[home] == no_workload) {
        of.from = std::make_unique<idle_source>(
            demand.model_layers[model], demand.model_experts[model], demand.model_top_k[model]);
        return success();
    }
    const double share =
        demand.home_model[size_t{home} * demand.models + model] / static_cast<double>(parts);
    arrival_options how;
    how.seed = config_.seed;
    how.home = static_cast<uint32_t>(nodes_.size() - 1);
    how.batch = config_.batch;
    how.prefill_max = config_.prefill ? config_.prefill : prefill_default;
    if (cluster_.duration_s > 0) how.end_ns = ns_of(cluster_.duration_s);
    if (cluster_.requests > 0)
        how.requests_max = std::max<uint64_t>(
            1, static_cast<uint64_t>(std::llround(static_cast<double>(cluster_.requests) * share)));
    std::vector<arrival_phase> phases;
    const cluster_workload *now = &cluster_.workloads[scene_.home_workload[home]];
    for (uint64_t from_ns = 0; now;) {
        auto phase = phase_of(*now, home, model);
        if (!phase) return phase.failure();
        phase->from_ns = from_ns;
        if (now->poisson_s == 0 && now->arrivals.empty())
            return error{format("{}: workload {} does not say when requests come; give poisson_s "
                                "= 10, or arrivals = \"requests.csv\"",
                                now->place, now->name),
                         true};
        phase->poisson_s = now->poisson_s / share;
        if (!now->arrivals.empty()) {
            auto all = read_arrivals(now->arrivals);
            if (!all) return all.failure();
            std::vector<arrival> &mine = listed_.emplace_back();
            for (size_t i = part; i < all->size(); i += parts) mine.push_back((*all)[i]);
            how.arrivals = mine;
        }
        phases.push_back(std::move(*phase));
        if (now->then.empty()) break;
        if (ns_of(now->then_s) <= from_ns)
            return error{
                format("{}: workload {} is followed at {} s, which is not after its "
                       "begin at {} s",
                       now->place, now->name, now->then_s, static_cast<double>(from_ns) / 1e9),
                true};
        from_ns = ns_of(now->then_s);
        const auto next = std::ranges::find(cluster_.workloads, now->then, &cluster_workload::name);
        now = next == cluster_.workloads.end() ? nullptr : &*next;
    }
    auto made = arrival_source::make(std::move(phases), how, all_->clock());
    if (!made) return made.failure();
    auto kept = std::make_unique<arrival_source>(std::move(*made));
    of.requests = kept.get();
    of.from = std::move(kept);
    return success();
}

status cluster_runner::fault() const {
    if (faults_.fatal().empty()) return success();
    return error{faults_.fatal() +
                 "; the run ended (set [plugins] on_fault = \"replace\" to go on with the host's "
                 "default)"};
}

// A row for each link that carries anything.
void cluster_runner::show_links() {
    all_->links().on_sent = [this](uint32_t channel, traffic kind, uint64_t bytes,
                                   uint64_t start_ns, uint64_t end_ns) {
        if (all_->links().local(channel)) return;
        const channel_figures of = all_->links().figures(channel);
        const std::string name = endpoint_name(scene_, all_->links(), of.from) + " to " +
                                 endpoint_name(scene_, all_->links(), of.to);
        const uint32_t row = options_.events->track(name, "network");
        options_.events->span(row, kind == traffic::migration ? "migration" : "activations",
                              start_ns, end_ns - start_ns, {{"bytes", bytes}});
    };
}

result<run_report> cluster_runner::drive() {
    rebalancer balance(scene_, *all_, policy_.get(), plan_, cluster_);
    if (options_.events) show_links();
    all_->begin();
    while (all_->next_ns() != MOORAGE_NEVER) {
        if (balance.next_ns() < all_->next_ns()) {
            all_->idle_until(balance.next_ns());
            if (const status done = balance.act(); !done) return done.failure();
        } else {
            all_->step();
            balance.look_again();
        }
        if (const status well = fault(); !well) return well.failure();
    }
    cluster_sums sums(scene_, *all_, cluster_);
    for (const auto &one : nodes_) sums.add(*one->node, *one->line, one->requests);
    run_report report = sums.report(balance, plan_.policy);
    report.executor = config_.executor;
    report.profile = "cluster";
    report.title = config_.title;
    report.seed = config_.seed;
    report.lossy = nodes_.front()->policies.lossy();
    report.faults = {faults_.counts().begin(), faults_.counts().end()};
    report.without_advice = {faults_.without_advice().begin(), faults_.without_advice().end()};
    for (std::string &warning : warnings_)
        if (std::ranges::find(report.warnings, warning) == report.warnings.end())
            report.warnings.push_back(std::move(warning));
    json &all = *report.config;
    all["run"] = {{"executor", config_.executor},
                  {"batch", config_.batch},
                  {"prefill", config_.prefill ? config_.prefill : prefill_default},
                  {"seed", config_.seed}};
    all["cluster"] = {{"servers", scene_.cluster.servers}, {"devices", scene_.cluster.devices()},
                      {"homes", scene_.cluster.homes},     {"models", scene_.model_names},
                      {"duration_s", cluster_.duration_s}, {"requests", cluster_.requests}};
    all["placement"] = {{"plugin", plan_.policy},
                        {"interval_s", policy_ ? cluster_.interval_s : 0},
                        {"window_s", cluster_.window_s}};
    if (!cluster_.plan.empty()) all["placement"]["plan"] = cluster_.plan.filename().string();
    if (policy_)
        for (const auto &[key, value] : policy_->policy().parameters())
            all["placement"][key] = json_of(value);
    nodes_.front()->policies.describe(all);
    return report;
}

}  // namespace

result<run_report> run_cluster(const run_config &config, run_resources &shared,
                               const run_options &options) {
    watch_calls(config);
    return believed(config, cluster_runner(config, shared, options)());
}

result<run_report> run_either(const run_config &config, run_resources &shared,
                              const run_options &options) {
    return config.cluster ? run_cluster(config, shared, options) : run(config, shared, options);
}

}  // namespace moorage::core

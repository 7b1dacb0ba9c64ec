// served_home.cpp - makes the parts of a node, one after the other.
#include "tools/cluster/served_home.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "tools/cluster/idle_source.h"
#include "core/dispatch/machine_table.h"
#include "core/pipeline/composition.h"

namespace moorage::core {

namespace {

// Homes that are not GPUs get this hardware. It only yields durations that nobody waits for.
hardware_profile ideal_hardware() {
    hardware_profile hardware;
    hardware.device.memory_bytes = uint64_t{1} << 40;
    hardware.device.memory_bytes_per_s = hardware.device.flops_per_s = 1e12;
    hardware.link.h2d_bytes_per_s = hardware.link.d2h_bytes_per_s = 1e9;
    hardware.node.memory_bytes_per_s = hardware.node.cpu_bytes_per_s =
        hardware.node.cpu_flops_per_s = 1e9;
    return hardware;
}

}  // namespace

status served_home::make(const home_place &place, const request_share &share) {
    place_ = place;
    node_ = &surroundings_.emulator.add(place);
    costs_ = std::make_unique<cost_model>(
        on_device() ? scene_.hardware[place.device] : ideal_hardware(), scene_.shapes[place.model]);
    *policy_costs_ = costs_->summary(1);
    if (const status done = make_source(share); !done) return done;
    if (const status done = take_sizes(); !done) return done;
    make_store();
    make_executor();
    if (const status done = make_policies(); !done) return done;
    make_pipeline();
    node_->attach({line_.get(), executor_.get(), gpu_, source_.get(), loads_});
    if (!on_device() && !scene_.demand.home_holds.empty()) keep_held();
    return success();
}

status served_home::make_source(const request_share &share) {
    const demand_arrays &demand = scene_.demand;
    const uint32_t model = place_.model;
    if (scene_.home_workload[place_.home] == no_workload) {
        source_ = std::make_unique<idle_source>(
            demand.model_layers[model], demand.model_experts[model], demand.model_top_k[model]);
        return success();
    }
    auto requests =
        make_requests(surroundings_.inputs, place_, share, surroundings_.emulator.clock());
    if (!requests) return requests.failure();
    requests_ = requests->get();
    source_ = std::move(*requests);
    return success();
}

status served_home::take_sizes() {
    const cluster_arrays &cluster = scene_.cluster;
    const stage_config &prefetch = surroundings_.inputs.config.prefetch;
    loads_ = on_device() &&
             surroundings_.inputs.config.cluster->servers[cluster.device_server[place_.device]]
                 .host_experts;
    if (!loads_ && prefetch.plugin != "none")
        return error{format("{}: prefetch {} brings experts from host memory, which {} does not "
                            "hold; set host_experts = true for its server, or prefetch \"none\"",
                            prefetch.place, prefetch.plugin, name()),
                     true};
    pages_ = source_->layers() * source_->experts();
    const uint64_t fit =
        on_device() ? cluster.device_bytes[place_.device] / scene_.demand.expert_bytes[place_.model]
                    : pages_;
    capacity_ = static_cast<uint32_t>(std::min<uint64_t>(fit, pages_));
    buffer_ = loads_ ? source_->top_k() : 0;
    transfers_ = pipeline::transfers_for(source_->experts(), buffer_, false);
    return success();
}

// Without loads a placement decides what has a slot.
void served_home::make_store() {
    const uint32_t layers = source_->layers(), experts = source_->experts();
    ledger_ = std::make_unique<ledger>(
        layers, experts, std::vector<uint32_t>{loads_ ? capacity_ : 0},
        std::make_unique<arena>(layers, experts, 1, capacity_, buffer_ + pipeline::staging_slots));
}

void served_home::make_executor() {
    uint64_t *const clock = surroundings_.emulator.clock();
    if (!on_device()) {
        const cluster_arrays &cluster = scene_.cluster;
        const double call_s =
            cluster.home_call_s[size_t{place_.home} * cluster.models + place_.model];
        executor_ = std::make_unique<ideal_executor>(
            static_cast<uint64_t>(std::llround(call_s * 1e9)), transfers_, clock);
        return;
    }
    if (surroundings_.events)
        sink_ = std::make_unique<timeline_sink>(*surroundings_.events, source_->experts(), name(),
                                                name());
    auto gpu = std::make_unique<emulator>(*costs_, transfers_, sink_.get(), clock);
    gpu_ = gpu.get();
    executor_ = std::move(gpu);
}

status served_home::make_policies() {
    policy_set::request request{
        .config = surroundings_.inputs.config,
        .policy_registry = surroundings_.inputs.shared.policies(),
        .offers = source_->offers(),
        .source_name = "the workload of " + scene_.home_names[place_.home],
        .common_environment = {ledger_->view(), policy_costs_.lent(),
                               surroundings_.emulator.clock(), nullptr,
                               surroundings_.inputs.config.seed, &surroundings_.faults}};
    if (const status done = policies_.make(request); !done) return done;
    moorage_limits bounds = limits();
    const machine_table table({*costs_, {}}, {{capacity_}}, MOORAGE_NONE, node_->distances());
    table.show_in(bounds);
    if (const status done = policies_.activate(bounds); !done) return done;
    // A device does not call itself.
    const uint32_t callable = node_->servers() - (on_device() ? 1 : 0);
    return check_composition(
        {surroundings_.inputs.config, policies_, source_->experts(), buffer_, callable},
        surroundings_.warnings);
}

moorage_limits served_home::limits() const {
    moorage_limits limits = limits_of(*source_);
    limits.slots = capacity_;
    limits.buffer_slots = source_->top_k();
    limits.transfers_max = pipeline::transfers_for(source_->experts(), source_->top_k(), false);
    limits.expert_bytes = costs_->shape().expert_bytes;
    return limits;
}

void served_home::make_pipeline() {
    const run_config &config = surroundings_.inputs.config;
    line_ = std::make_unique<pipeline>(pipeline::parts{
        .pass_source = source_.get(),
        .run_executor = executor_.get(),
        .costs = costs_.get(),
        .policy_costs = &*policy_costs_,
        .device_memories = ledger_.get(),
        .faults = &surroundings_.faults,
        .policies = policies_.by_stage(),
        .slots = {capacity_},
        .buffer_slots = buffer_,
        .transfers_max = transfers_,
        .needs = policies_.needs(),
        .watcher = node_,
        .routing = {config.exact_requests, config.substitution_max, policies_.lossy()},
        .cluster_peers = node_,
        .events = sink_.get()});
}

// Keeps the experts that a home has from the start.
void served_home::keep_held() {
    const demand_arrays &demand = scene_.demand;
    const uint8_t *holds = demand.home_holds.data() + size_t{place_.home} * demand.experts();
    for (uint32_t page = 0; page < pages_; ++page)
        if (holds[demand.model_first[place_.model] + page]) line_->make_resident(page);
}

}  // namespace moorage::core

// home_requests.cpp - follows a home's workloads one after the other: which experts their tokens
// choose, and when requests come.
#include "tools/cluster/home_requests.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "tools/placement/activation.h"

namespace moorage::core {

namespace {

// Part of the home's requests that this node gets for its model.
double share_of(const home_inputs &inputs, const home_place &place, const request_share &share) {
    const demand_arrays &demand = inputs.cluster_scene.demand;
    return demand.home_model[size_t{place.home} * demand.models + place.model] /
           static_cast<double>(share.parts);
}

const cluster_workload &first_of(const home_inputs &inputs, const home_place &place) {
    return inputs.config.cluster->workloads[inputs.cluster_scene.home_workload[place.home]];
}

// The number of this home's requests, out of the number in the configuration.
uint64_t requests_of(const home_inputs &inputs, const home_place &place,
                     const request_share &share) {
    const demand_arrays &demand = inputs.cluster_scene.demand;
    std::vector<double> shares;  // [models][parts]
    for (uint32_t model = 0; model < demand.models; ++model)
        shares.insert(shares.end(), share.parts,
                      share_of(inputs, {place.device, place.home, model}, share));
    const auto counts = apportioned(inputs.config.cluster->requests, shares);
    return counts[size_t{place.model} * share.parts + share.part];
}

arrival_options options_of(const home_inputs &inputs, const home_place &place,
                           const request_share &share) {
    const run_config &config = inputs.config;
    arrival_options options;
    options.seed = config.seed;
    options.home = share.number;
    options.batch = config.batch;
    options.prefill_max = config.prefill ? config.prefill : prefill_default;
    const cluster_config &cluster = *config.cluster;
    if (cluster.duration_s > 0) options.end_ns = ns_of(cluster.duration_s / cluster.rate_factor);
    if (cluster.requests > 0) options.requests_max = requests_of(inputs, place, share);
    return options;
}

// The requests while a workload lasts: rows of its trace, or draws.
result<arrival_phase> phase_of(const home_inputs &inputs, const home_place &place,
                               const cluster_workload &workload) {
    arrival_phase phase;
    phase.input_tokens = workload.input_tokens;
    phase.output_tokens = workload.output_tokens;
    if (!workload.trace.empty()) {
        const auto opened = inputs.shared.open(workload.trace);
        if (!opened) return opened.failure();
        if (fits(**opened, inputs.cluster_scene.shapes[place.model])) {
            auto requests = chosen_requests(**opened, workload);
            if (!requests) return requests.failure();
            phase.rows = *opened;
            phase.requests = std::move(*requests);
            return phase;
        }
    }
    if (first_of(inputs, place).name != workload.name)
        return error{
            format("{}: workload {} comes after another and has no trace of {}; only "
                   "workloads with traces can follow",
                   workload.place, workload.name, inputs.cluster_scene.model_names[place.model]),
            true};
    auto drawn = drawn_routing::from_demand(inputs.cluster_scene.demand, place.home, place.model,
                                            inputs.config.seed);
    if (!drawn) return drawn.failure();
    phase.drawn = std::move(*drawn);
    if (phase.input_tokens == 0) phase.input_tokens = 1;
    if (phase.output_tokens == 0) phase.output_tokens = 1;
    return phase;
}

// Takes the workload's list, if it has one. Every device takes each parts-th request.
status take_list(const cluster_workload &workload, const request_share &share, double rate_factor,
                 std::vector<arrival> &arrivals) {
    if (workload.poisson_s == 0 && workload.arrivals.empty())
        return error{format("{}: workload {} does not say when requests come; give poisson_s "
                            "= 10, or arrivals = \"requests.csv\"",
                            workload.place, workload.name),
                     true};
    if (workload.arrivals.empty()) return success();
    const auto listed = read_arrivals(workload.arrivals);
    if (!listed) return listed.failure();
    arrivals.clear();
    for (size_t i = share.part; i < listed->size(); i += share.parts) {
        arrivals.push_back((*listed)[i]);
        arrivals.back().at_s /= rate_factor;
    }
    return success();
}

}  // namespace

std::vector<uint64_t> apportioned(uint64_t total, std::span<const double> shares) {
    std::vector<uint64_t> counts;
    std::vector<std::pair<double, size_t>> left;  // negative remainders, the largest first
    uint64_t assigned = 0;
    for (const double share : shares) {
        const double exact = static_cast<double>(total) * share;
        counts.push_back(std::min(static_cast<uint64_t>(exact), total - assigned));
        assigned += counts.back();
        left.emplace_back(static_cast<double>(counts.back()) - exact, left.size());
    }
    std::ranges::sort(left);
    for (size_t i = 0; assigned < total && i < left.size(); ++i, ++assigned)
        ++counts[left[i].second];
    return counts;
}

result<std::unique_ptr<arrival_source>> make_requests(const home_inputs &inputs,
                                                      const home_place &place,
                                                      const request_share &share,
                                                      const uint64_t *clock) {
    const double rate_factor = inputs.config.cluster->rate_factor;
    const double pace = share_of(inputs, place, share) * rate_factor;
    arrival_options options = options_of(inputs, place, share);
    std::vector<arrival_phase> phases;
    const auto &workloads = inputs.config.cluster->workloads;
    const cluster_workload *workload = &first_of(inputs, place);
    for (uint64_t from_ns = 0;;) {
        auto phase = phase_of(inputs, place, *workload);
        if (!phase) return phase.failure();
        phase->begin_ns = from_ns;
        phase->poisson_s = workload->poisson_s / pace;
        if (const status done = take_list(*workload, share, rate_factor, options.arrivals); !done)
            return done.failure();
        phases.push_back(std::move(*phase));
        const auto next =
            std::ranges::find(workloads, workload->next_workload, &cluster_workload::name);
        if (workload->next_workload.empty() || next == workloads.end()) break;
        const uint64_t then_ns = ns_of(workload->next_workload_s / rate_factor);
        if (then_ns <= from_ns)
            return error{format("{}: workload {} is followed at {} s, which is not after its "
                                "begin at {} s",
                                workload->place, workload->name, workload->next_workload_s,
                                static_cast<double>(from_ns) / 1e9),
                         true};
        from_ns = then_ns;
        workload = &*next;
    }
    auto requests = arrival_source::make(std::move(phases), options, clock);
    if (!requests) return requests.failure();
    return std::make_unique<arrival_source>(std::move(*requests));
}

}  // namespace moorage::core

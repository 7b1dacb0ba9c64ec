// home_requests.cpp - follows a home's workloads one after the other: which experts their tokens
// choose, and when requests come.
#include "core/cluster/home_requests.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/placement/activation.h"

namespace moorage::core {

namespace {

// Part of the home's requests that this node gets for its model.
double share_of(const home_inputs &from, const home_place &place, const request_share &share) {
    const demand_arrays &demand = from.of.demand;
    return demand.home_model[size_t{place.home} * demand.models + place.model] /
           static_cast<double>(share.parts);
}

const cluster_workload &first_of(const home_inputs &from, const home_place &place) {
    return from.config.cluster->workloads[from.of.home_workload[place.home]];
}

// The number of this home's requests, out of the number in the configuration.
uint64_t requests_of(const home_inputs &from, const home_place &place, const request_share &share) {
    const demand_arrays &demand = from.of.demand;
    std::vector<double> shares;  // [models][parts]
    for (uint32_t model = 0; model < demand.models; ++model)
        shares.insert(shares.end(), share.parts,
                      share_of(from, {place.device, place.home, model}, share));
    const auto all = apportioned(from.config.cluster->requests, shares);
    return all[size_t{place.model} * share.parts + share.part];
}

arrival_options options_of(const home_inputs &from, const home_place &place,
                           const request_share &share) {
    const run_config &config = from.config;
    arrival_options how;
    how.seed = config.seed;
    how.home = share.number;
    how.batch = config.batch;
    how.prefill_max = config.prefill ? config.prefill : prefill_default;
    const cluster_config &cluster = *config.cluster;
    if (cluster.duration_s > 0) how.end_ns = ns_of(cluster.duration_s / cluster.faster);
    if (cluster.requests > 0) how.requests_max = requests_of(from, place, share);
    return how;
}

// The requests while a workload lasts: rows of its trace, or draws.
result<arrival_phase> phase_of(const home_inputs &from, const home_place &place,
                               const cluster_workload &workload) {
    arrival_phase phase;
    phase.input_tokens = workload.input_tokens;
    phase.output_tokens = workload.output_tokens;
    if (!workload.trace.empty()) {
        const auto opened = from.shared.open(workload.trace);
        if (!opened) return opened.failure();
        if (fits(**opened, from.of.shapes[place.model])) {
            auto requests = chosen_requests(**opened, workload);
            if (!requests) return requests.failure();
            phase.rows = *opened;
            phase.requests = std::move(*requests);
            return phase;
        }
    }
    if (first_of(from, place).name != workload.name)
        return error{format("{}: workload {} comes after another and has no trace of {}; only "
                            "workloads with traces can follow",
                            workload.place, workload.name, from.of.model_names[place.model]),
                     true};
    auto drawn =
        drawn_routing::from_demand(from.of.demand, place.home, place.model, from.config.seed);
    if (!drawn) return drawn.failure();
    phase.drawn = std::move(*drawn);
    if (phase.input_tokens == 0) phase.input_tokens = 1;
    if (phase.output_tokens == 0) phase.output_tokens = 1;
    return phase;
}

// Takes the workload's list, if it has one. Every device takes each parts-th request.
status take_list(const cluster_workload &workload, const request_share &share, double faster,
                 std::vector<arrival> &out) {
    if (workload.poisson_s == 0 && workload.arrivals.empty())
        return error{format("{}: workload {} does not say when requests come; give poisson_s "
                            "= 10, or arrivals = \"requests.csv\"",
                            workload.place, workload.name),
                     true};
    if (workload.arrivals.empty()) return success();
    const auto all = read_arrivals(workload.arrivals);
    if (!all) return all.failure();
    out.clear();
    for (size_t i = share.part; i < all->size(); i += share.parts) {
        out.push_back((*all)[i]);
        out.back().at_s /= faster;
    }
    return success();
}

}  // namespace

std::vector<uint64_t> apportioned(uint64_t all, std::span<const double> shares) {
    std::vector<uint64_t> counts;
    std::vector<std::pair<double, size_t>> left;  // negative remainders, the largest first
    uint64_t given = 0;
    for (const double share : shares) {
        const double exact = static_cast<double>(all) * share;
        counts.push_back(std::min(static_cast<uint64_t>(exact), all - given));
        given += counts.back();
        left.emplace_back(static_cast<double>(counts.back()) - exact, left.size());
    }
    std::ranges::sort(left);
    for (size_t i = 0; given < all && i < left.size(); ++i, ++given) ++counts[left[i].second];
    return counts;
}

result<std::unique_ptr<arrival_source>> make_requests(const home_inputs &from,
                                                      const home_place &place,
                                                      const request_share &share,
                                                      const uint64_t *clock) {
    const double faster = from.config.cluster->faster;
    const double pace = share_of(from, place, share) * faster;
    arrival_options how = options_of(from, place, share);
    std::vector<arrival_phase> phases;
    const auto &all = from.config.cluster->workloads;
    const cluster_workload *now = &first_of(from, place);
    for (uint64_t from_ns = 0;;) {
        auto phase = phase_of(from, place, *now);
        if (!phase) return phase.failure();
        phase->from_ns = from_ns;
        phase->poisson_s = now->poisson_s / pace;
        if (const status done = take_list(*now, share, faster, how.arrivals); !done)
            return done.failure();
        phases.push_back(std::move(*phase));
        const auto next = std::ranges::find(all, now->then, &cluster_workload::name);
        if (now->then.empty() || next == all.end()) break;
        const uint64_t then_ns = ns_of(now->then_s / faster);
        if (then_ns <= from_ns)
            return error{
                format("{}: workload {} is followed at {} s, which is not after its "
                       "begin at {} s",
                       now->place, now->name, now->then_s, static_cast<double>(from_ns) / 1e9),
                true};
        from_ns = then_ns;
        now = &*next;
    }
    auto made = arrival_source::make(std::move(phases), how, clock);
    if (!made) return made.failure();
    return std::make_unique<arrival_source>(std::move(*made));
}

}  // namespace moorage::core

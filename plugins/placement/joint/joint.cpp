// joint.cpp - our own placement: local search over the exact latency, with a proven bound.
//
// The policy minimises the cost of placement_cost.hpp: the latency of moorage/latency.hpp; as
// options also remote calls, queueing at devices and links, and the cost of moving copies. It
// starts from the plans of the other policies (rival_plans.hpp) and from plans that it makes itself
// (start_plans.hpp):
// - gain per byte
// - the holders of a relaxation
// - calls of the own homes, with and without a copy of everything first
// - everything everywhere, then the least missed experts leave
// - the plan in force
// It improves the best of them (local_search.hpp: add, drop, replace, trade, move, exchange, whole
// layers, whole servers). In the time that is left, it disturbs the best one and improves it again.
// If millions of sets are known, it first does all this on a sample of them. In the end it compares
// the best plan with all starts by the exact latency. So it is never worse than a plan of another
// policy, with two limits: `effort` must suffice, and the other policies see only frequencies if
// their plans would take minutes with sets. A plan in force is only left for a better one.
// lower_bound.hpp gives the bound; layer_bound.hpp gives a tighter one for small layers.
//
// Facts: objective_s is the latency of a token. bound_s is a value that no plan can go below
// (objective "latency"). gap = objective_s / bound_s - 1. saved_s, saved_bound_s and saved_gap are
// the same as savings against an empty plan (SlimCaching's F). remote_calls is per token;
// remote_bound comes with objective "remote". steps are steps of evaluation. start is the number of
// the winning start (planning.hpp). Bounds and gaps are left out if experts x servers x servers
// with homes are more than 2 x 10^8.
//
// Deterministic: no clock, random numbers only from a fixed seed, limits in steps of evaluation.
//
// Results on 2,000 random clusters of 12 experts a layer (1 to 6 servers, 1 to 3 models, K 1 to 8,
// with and without a cloud): none of 19,894 plans of other policies is better by the latency that
// all are judged by. Median distance above the bound: with serial calls 1.8 % for K = 1, 9.9 % up
// to 5, 10.8 % up to 8; with parallel calls 0.7, 23 and 42 %. Repeat with
// MOORAGE_JOINT_INSTANCES=2000 ctest --test-dir build/release -V -R '^joint_test$'; without the
// variable there are 40 clusters.
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include <moorage/moorage.hpp>

#include "improving.hpp"
#include "report.hpp"
#include "start_plans.hpp"

namespace {

using moorage::latency_model;
using moorage::joint::call_times;
using moorage::joint::none;
using moorage::joint::placement_state;
using moorage::joint::planning;

class joint {
public:
    static constexpr moorage::about about{
        .name = "joint",
        .summary = "local search over the exact latency, with a proven bound",
        .source = "our own; latency of SlimCaching, Section III, and Prism, Eq. 1"};
    static constexpr moorage::param params[] = {
        moorage::text("objective", "auto", "auto|latency|both|remote",
                      "what is minimised: a token's latency; the same with no more remote calls "
                      "than Prism's plan has (both); or remote calls (Prism, Eq. 2), with the "
                      "latency to decide between equals. auto: latency"),
        moorage::real("remote_s", 0, 0, 1e9,
                      "seconds that a remote call counts beside its latency: spares links"),
        moorage::real("load_weight", 0, 0, 1e9,
                      "weight of the waiting of an M/M/1 queue at every device and link, at the "
                      "homes' tokens per second; 1: as much as other seconds, 0: no queues"),
        moorage::real("payback_s", 300, 0, 1e9,
                      "with a plan in force: seconds within which a move must bring what it costs "
                      "(Prism, Eq. 4: until the next decision); 0: moves cost nothing"),
        moorage::real("move_cost_s", 0, 0, 1e9,
                      "seconds that moving a byte costs; 0: what writing it into the device takes"),
        moorage::integer("effort", 100'000'000, 0, 4'000'000'000,
                         "steps of evaluation (a layer's set of experts looked at) that the "
                         "search takes beside pricing its start, 10 to 30 ns each; 0: the start"),
        moorage::integer("kicks", 300, 0, 600,
                         "disturbances in a row that may bring nothing before it stops"),
    };

    explicit joint(const moorage::setup &setup) : host_(setup.host.table()), settings_(setup) {}

    void activate(const moorage::limits &) {}
    void reset() { facts_.clear(); }

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy> current, moorage::copies &copies) {
        facts_.clear();
        const latency_model latency(cluster, demand);
        const call_times times(latency);
        planning run(settings_, latency, times, /*stride=*/1);
        const uint64_t members = count_members(latency);
        moorage_demand shown_demand = demand;
        if (greedy_times(latency, members) > greedy_times_most) shown_demand.calls = 0;
        if (members > members_most && settings_.effort > 0) {
            planning sample(settings_, latency, times,
                            static_cast<uint32_t>(members / (members_most / 2)));
            sample.steps_max = settings_.effort / 2;
            start(sample, shown_demand, current);
            if (!sample.best.empty()) disturb_best(sample);
            run.sample_best = sample.best;
            run.state.add_steps(sample.state.steps());
        }
        start(run, shown_demand, current);
        if (run.best.empty()) fail(cluster, demand);
        disturb_best(run);
        choose_best(run);
        for (uint32_t expert = 0; expert < latency.experts(); ++expert)
            for (uint32_t server = 0; server < cluster.servers; ++server)
                if (run.state.device_at(expert, server) != none)
                    copies.push(expert, run.state.device_at(expert, server));
        facts_ = moorage::joint::report(run).facts();
    }

    // Adopts if the seconds that homes save until the next decision pay for the seconds of copying.
    // This is Prism's Eq. 4 in one unit.
    bool adopt(const moorage_move &move) {
        const latency_model latency(*move.host_cluster, *move.host_demand);
        const call_times times(latency);
        placement_state state(latency, times, settings_.weights());
        put_copies(state, {move.host_current, move.current_count});
        const double before_s = state.total();
        state.clear();
        put_copies(state, {move.host_candidate, move.candidate_count});
        return (before_s - state.total()) * moorage::joint::tokens_per_s(*move.host_demand) *
                   move.interval_s >
               move.added_s;
    }

    uint32_t facts(std::span<moorage_fact> target) {
        const size_t count = std::min(target.size(), facts_.size());
        std::copy_n(facts_.begin(), count, target.begin());
        return static_cast<uint32_t>(count);
    }

private:
    // Sets with more members in total are first searched by a sample.
    static constexpr uint64_t members_most = 1'500'000;

    // Above this number, some ten seconds of slim_greedy, the other policies see only frequencies.
    static constexpr double greedy_times_most = 1e7;

    static uint64_t count_members(const latency_model &latency) {
        uint64_t members = 0;
        latency.for_sets(
            [&](uint32_t, double, std::span<const uint32_t> set) { members += set.size(); });
        return members;
    }
    static uint64_t room_bytes(const moorage_cluster &cluster) {
        return std::accumulate(cluster.host_device_bytes,
                               cluster.host_device_bytes + cluster.devices, uint64_t{0});
    }
    // About how many times of layers slim_greedy asks for. A copy changes the gains of other
    // experts in its sets, on every server. If messages dominate, it asks for a twentieth.
    static double greedy_times(const latency_model &latency, uint64_t members) {
        const moorage_cluster &cluster = latency.cluster();
        const moorage_demand &demand = latency.demand();
        uint64_t least = UINT64_MAX;
        for (uint32_t model = 0; model < demand.models; ++model)
            least = std::min(least, std::max<uint64_t>(demand.host_expert_bytes[model], 1));
        const double experts = latency.experts(), servers = cluster.servers;
        const double fitting = static_cast<double>(room_bytes(cluster) / least);
        const double copies = std::min(fitting, experts * servers);
        return copies * static_cast<double>(members) / experts * servers *
               (latency.messages_dominate() ? 0.05 : 1);
    }

    // Makes the starts and improves them. `shown_demand`: what the other policies see.
    void start(planning &run, const moorage_demand &shown_demand,
               std::span<const moorage_copy> current) const {
        // Without a limit at first: it makes one plan, however many steps that takes.
        moorage::joint::search_context search(run.state, run.cover, /*steps_max=*/UINT64_MAX,
                                              /*seed=*/1);
        moorage::joint::start_plans(run, search, host_, shown_demand).make(current);
        improve_starts(run, search);
    }
    [[noreturn]] static void fail(const moorage_cluster &cluster, const moorage_demand &demand) {
        uint64_t needed = 0;
        for (uint32_t model = 0; model < demand.models; ++model)
            if (moorage::joint::is_wanted(demand, model))
                needed += demand.host_expert_bytes[model] *
                          (demand.host_model_first[model + 1] - demand.host_model_first[model]);
        throw std::invalid_argument("joint: one copy of every expert takes " +
                                    std::to_string(needed) + " bytes, the devices have " +
                                    std::to_string(room_bytes(cluster)) +
                                    " and no way was found to fit them in; give them more memory "
                                    "or a cloud");
    }

    const moorage_host *host_;
    const moorage::joint::settings settings_;
    std::vector<moorage_fact> facts_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.placement.joint", "1.0.0", joint)

// joint.cpp - our own placement: local search over the exact latency, with a proven bound.
//
// The policy minimises the cost of state.hpp: the latency of moorage/latency.hpp; as options also
// remote calls, queueing at devices and links, and the cost of moving copies. It starts from the
// plans of the other policies (starts.hpp) and from plans that it makes itself:
// - gain per byte
// - the holders of a relaxation
// - calls of the own homes, with and without a copy of everything first
// - everything everywhere, then the least missed experts leave
// - the plan in force
// It improves the best of them (search.hpp: add, drop, replace, trade, move, exchange, whole
// layers, whole servers). In the time that is left, it disturbs the best one and improves it again.
// If millions of sets are known, it first does all this on a sample of them. In the end it compares
// the best plan with all starts by the exact latency. So it is never worse than a plan of another
// policy, with two limits: `effort` must suffice, and the other policies see only frequencies if
// their plans would take minutes with sets. A plan in force is only left for a better one.
// bound.hpp gives the bound; layer_bound.hpp gives a tighter one for small layers.
//
// Facts: objective_s is the latency of a token. bound_s is a value that no plan can go below
// (objective "latency"). gap = objective_s / bound_s - 1. saved_s, saved_bound_s and saved_gap are
// the same as savings against an empty plan (SlimCaching's F). remote_calls is per token;
// remote_bound comes with objective "remote". steps are steps of evaluation. start is the number of
// the winning start. Bounds and gaps are left out if experts x servers x servers with homes are
// more than 2 x 10^8.
//
// Deterministic: no clock, random numbers only from a fixed seed, limits in steps of evaluation.
//
// Results on 2,000 random clusters of 12 experts a layer (1 to 6 servers, 1 to 3 models, K 1 to 8,
// with and without a cloud): none of 19,894 plans of other policies is better by the latency that
// all are judged by. Median distance above the bound: with serial calls 1.8 % for K = 1, 9.9 % up
// to 5, 10.8 % up to 8; with parallel calls 0.7, 23 and 42 %. Repeat with
// MOORAGE_JOINT_INSTANCES=2000 ctest --test-dir build/release -V -R '^joint_test$'; without the
// variable there are 40 clusters.
#include "bound.hpp"
#include "layer_bound.hpp"
#include "search.hpp"
#include "starts.hpp"

#include <stdexcept>
#include <string>

#include <moorage/moorage.hpp>

namespace {

using moorage::latency_model;
using moorage::joint::cost_weights;
using moorage::joint::layer_time;
using moorage::joint::lower_bound;
using moorage::joint::none;
using moorage::joint::search;
using moorage::joint::starts;
using moorage::joint::state;

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
                         "steps of evaluation (a layer's set of experts looked at) that the whole "
                         "search takes, 10 to 30 ns each; 0: the plan that it starts from"),
        moorage::integer("kicks", 300, 0, 600,
                         "disturbances in a row that may bring nothing before it stops"),
    };

    explicit joint(const moorage::setup &setup)
        : host_(setup.host.table()),
          objective_(setup.text("objective")),
          remote_(objective_ == "remote"),
          remote_s_(setup.real("remote_s")),
          load_weight_(setup.real("load_weight")),
          payback_s_(setup.real("payback_s")),
          move_cost_s_(setup.real("move_cost_s")),
          effort_(static_cast<uint64_t>(setup.integer("effort"))),
          kicks_(static_cast<uint64_t>(setup.integer("kicks"))) {}

    void activate(const moorage::limits &) {}
    void reset() { facts_.clear(); }

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy> current, moorage::copies &copies) {
        facts_.clear();
        const latency_model latency(cluster, demand);
        const layer_time time(latency);
        planning run = make_planning(latency, time, 1);
        uint64_t members = 0;
        latency.for_sets(
            [&](uint32_t, double, std::span<const uint32_t> set) { members += set.size(); });
        moorage_demand shown_demand = demand;
        if (greedy_times(latency, members) > greedy_times_most) shown_demand.calls = 0;
        if (members > members_most && effort_ > 0) {
            planning sample =
                make_planning(latency, time, static_cast<uint32_t>(members / (members_most / 2)));
            sample.steps_max = effort_ / 2;
            start(sample, shown_demand, current);
            if (!sample.best.empty()) disturb(sample);
            run.hint = sample.best;
            run.search_state.add_work(sample.search_state.work());
        }
        start(run, shown_demand, current);
        if (run.best.empty()) fail(cluster, demand);
        disturb(run);
        choose(run);
        for (uint32_t expert = 0; expert < latency.experts(); ++expert)
            for (uint32_t server = 0; server < cluster.servers; ++server)
                if (run.search_state.device_at(expert, server) != none)
                    copies.push(expert, run.search_state.device_at(expert, server));
        report_facts(run);
    }

    // Adopts if the seconds that homes save until the next decision pay for the seconds of copying.
    // This is Prism's Eq. 4 in one unit.
    bool adopt(const moorage_move &move) {
        const latency_model latency(*move.host_cluster, *move.host_demand);
        const layer_time time(latency);
        state state(latency, time, weights());
        put_copies(state, {move.host_current, move.current_count});
        const double before_s = state.total();
        state.clear();
        put_copies(state, {move.host_candidate, move.candidate_count});
        return (before_s - state.total()) * tokens_per_s(*move.host_demand) * move.interval_s >
               move.added_s;
    }

    uint32_t facts(std::span<moorage_fact> target) {
        const size_t count = std::min(target.size(), facts_.size());
        std::copy_n(facts_.begin(), count, target.begin());
        return static_cast<uint32_t>(count);
    }

private:
    struct start_plan {
        std::vector<uint32_t> placement;
        double cost;
        uint32_t number;
    };
    struct planning {
        const latency_model &latency;
        const layer_time &time;
        state search_state;
        lower_bound bound;
        const bool cover, limits_remote, sampled;
        std::vector<uint32_t> hint = {};  // placement of another search
        std::vector<uint32_t> best = {};  // placement
        double best_cost = moorage::joint::infinity;
        uint32_t best_start = 0;
        std::vector<start_plan> starts = {};
        uint64_t steps_max = 0;  // steps of evaluation

        // The steps left for the search. One more look at each start is reserved if costs have
        // changed, and one at the exact cost.
        uint64_t search_max(size_t start_count) const {
            const uint64_t reserved = (2 * start_count + 2) * search_state.evaluation();
            return steps_max - std::min(steps_max, reserved);
        }
    };

    static constexpr uint32_t starts_max = 8;  // starts that are improved

    // Sets with more members in total are first searched by a sample.
    static constexpr uint64_t members_most = 1'500'000;

    // Above this number, some ten seconds of slim_greedy, the other policies see only frequencies.
    static constexpr double greedy_times_most = 1e7;

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

    planning make_planning(const latency_model &latency, const layer_time &time,
                           uint32_t stride) const {
        const bool cover = !time.has_cloud();
        return {latency,
                time,
                {latency, time, weights(), stride},
                {latency, time, bound_weights(), cover, stride},
                cover,
                objective_ == "both",
                stride > 1,
                /*hint=*/{},
                /*best=*/{},
                moorage::joint::infinity,
                /*best_start=*/0,
                /*starts=*/{},
                effort_};
    }
    cost_weights weights() const {
        if (remote_) return {1e-9, 1, load_weight_};
        return {1, remote_s_, load_weight_};
    }
    // The cost that the bound is for: remote calls alone, or the cost without load and moves.
    cost_weights bound_weights() const {
        if (remote_) return {0, 1, 0};
        return {1, remote_s_, 0};
    }
    static double tokens_per_s(const moorage_demand &demand) {
        double sum = 0;
        for (uint32_t home = 0; home < demand.homes; ++home)
            sum += demand.host_home_tokens_per_s[home];
        return sum > 0 ? sum : demand.homes;
    }
    // If a server has several copies, the fastest counts.
    static void put_copies(state &state, std::span<const moorage_copy> copies) {
        for (const moorage_copy &copy : copies) {
            const uint32_t server = state.time().server_of(copy.device),
                           model = state.latency().model_of(copy.expert);
            const uint32_t held_device = state.device_at(copy.expert, server);
            if (held_device == none ||
                state.time().call_s(copy.device, model) < state.time().call_s(held_device, model))
                state.put(copy.expert, server, copy.device);
        }
        state.forget();
    }
    static void set_copies(state &state, std::span<const moorage_copy> copies) {
        state.begin_empty();
        put_copies(state, copies);
        state.end_bulk();
    }
    void price_moves(planning &run, std::span<const moorage_copy> current) const {
        std::vector<double> added_s;
        for (uint32_t device = 0; device < run.time.devices(); ++device) {
            const double rate = run.latency.cluster().host_device_load_bytes_per_s[device];
            const double byte_s = move_cost_s_ > 0 ? move_cost_s_ : rate > 0 ? 1 / rate : 0;
            added_s.push_back(
                payback_s_ > 0 ? byte_s / (payback_s_ * tokens_per_s(run.latency.demand())) : 0);
        }
        run.search_state.set_current(current, added_s);
    }

    // `shown_demand`: the demand shown to the other policies.
    void start(planning &run, const moorage_demand &shown_demand,
               std::span<const moorage_copy> current) {
        std::vector<start_plan> plans;
        state &state = run.search_state;
        search moves(state, run.cover, UINT64_MAX, 1);  // the first plan, whatever it takes
        const auto take = [&](uint32_t number, bool valid) {
            state.forget();
            state.settle();
            if (!valid) return;
            plans.push_back({state.placement(), state.total(), number});
            moves.set_limit(run.search_max(plans.size()));
        };
        const auto goes_on = [&] {
            return plans.empty() ||
                   state.work() + state.evaluation() <= run.search_max(plans.size() + 1);
        };
        if (!run.hint.empty()) {
            state.restore(run.hint);
            take(8, true);
        }
        const auto by_calls = [&](bool first) {
            if (!goes_on() || (!first && state.sweep() > run.steps_max))
                return;  // too much to cover
            state.begin_empty();
            moves.by_calls(first);
            take(first ? 2 : 1, moves.cover());
        };
        // These are made for every `effort`. Then come the starts that cost one look each, so none
        // of them is missed.
        by_calls(true);
        if (plans.empty()) by_calls(false);
        starts others(host_, run.latency.cluster(), shown_demand);
        if (run.limits_remote || goes_on())
            others.prism([&](std::span<const moorage_copy> copies) {
                set_copies(state, copies);
                take(6, true);
            });
        if (run.limits_remote) limit_remote_calls(state, plans);
        if (!current.empty()) {
            price_moves(run, current);
            set_copies(state, current);
            take(0, moves.shrink() && moves.cover());
        }
        uint32_t number = 10;
        if (!run.sampled)
            others.for_each_plan(
                [&](std::span<const moorage_copy> copies) {
                    set_copies(state, copies);
                    take(number++, true);
                },
                goes_on);
        if (plans.empty() || plans.front().number != 1) by_calls(false);
        if (run.hint.empty() && !run.cover && goes_on()) {
            state.clear();
            moves.fill();
            take(3, true);
        }
        if (run.hint.empty() && !run.cover && goes_on()) {
            state.clear();
            moves.pack_all();
            take(7, true);
        }
        if (run.hint.empty() && goes_on()) relax(run, moves, plans, take);
        // The cost may have changed since. Sets are remembered, with the looks so far.
        const bool changed = run.limits_remote || !current.empty() || state.uses() != 0;
        for (start_plan &plan : plans) {
            if (!changed || plans.size() == 1) break;
            state.restore(plan.placement);
            state.settle();
            plan.cost = state.total();
        }
        std::stable_sort(
            plans.begin(), plans.end(),
            [](const start_plan &left, const start_plan &right) { return left.cost < right.cost; });
        improve_starts(run, moves, plans);
        run.starts = std::move(plans);
    }
    // Chooses by the exact cost. The search sees only the nearest holders.
    void choose(planning &run) const {
        if (run.search_state.uses() == 0) return run.search_state.restore(run.best);
        run.search_state.count_all();
        run.search_state.restore(run.best);
        run.search_state.settle();
        run.best_cost = run.search_state.total();
        for (const start_plan &plan : run.starts) {
            if (run.starts.size() == 1) break;
            run.search_state.restore(plan.placement);
            run.search_state.settle();
            if (run.search_state.total() >= run.best_cost) continue;
            run.best = plan.placement, run.best_cost = run.search_state.total();
            run.best_start = plan.number;
        }
        run.search_state.restore(run.best);
        run.search_state.settle();
    }
    // Limits remote calls to those of Prism's plan, or to those of the plan by calls if Prism has
    // none. A thousandth of a call above costs as much as all latency.
    static void limit_remote_calls(state &state, const std::vector<start_plan> &plans) {
        if (plans.empty()) return;
        state.restore(plans.back().placement);
        state.limit_remote(state.remote_calls() * (1 + 1e-12), 1000 * state.latency_s());
    }
    // Starts from the relaxation, with several prices of remote calls if these are limited.
    template <class Take>
    void relax(planning &run, search &moves, const std::vector<start_plan> &plans, Take take) {
        state &state = run.search_state;
        if (plans.empty() || !run.bound.enumerated()) return start_everywhere(run, moves, take);
        state.restore(plans.back().placement);
        const double remote = state.remote_calls(), latency_s = state.latency_s();
        const double rate_s = remote > 0 ? latency_s / remote : 0;
        for (const double part : {0.25, 1.0, 4.0, 0.0}) {
            if (part > 0 && !run.limits_remote) continue;
            cost_weights priced = bound_weights();
            priced.remote_s += part * rate_s;
            if (moves.spent()) return;
            run.bound.set_weights(priced);
            run.bound.ascend(priced.latency * latency_s + priced.remote_s * remote,
                             !run.bound.enumerated() ? 20
                             : part > 0              ? 6
                                                     : 40);
            if (!run.bound.enumerated()) continue;
            state.clear();
            state.begin_bulk();
            for (uint32_t expert = 0; expert < state.experts(); ++expert)
                for (uint32_t server = 0; server < state.servers(); ++server)
                    if ((run.bound.chosen(expert) >> server & 1) != 0)
                        state.put(expert, server, moves.device_for(expert, server, false));
            state.end_bulk();
            const bool valid = moves.shrink() && moves.cover();
            if (valid) moves.fill();
            take(4, valid);
        }
        start_everywhere(run, moves, take);
    }
    // Starts from everything everywhere.
    template <class Take>
    void start_everywhere(planning &run, search &moves, Take take) {
        state &state = run.search_state;
        if (state.sweep() * 8 > run.steps_max || moves.spent()) return;
        state.clear();
        moves.put_everywhere();
        const bool valid = moves.shrink() && moves.cover();
        if (valid) moves.fill();
        take(5, valid);
    }
    // Whether the bound leaves nothing to gain. It bounds the cost without load and moves.
    bool proven(const planning &run) const {
        return !remote_ && !run.sampled && !run.search_state.batched() &&
               run.best_cost - run.bound.value() < 1e-9 * std::abs(run.best_cost);
    }
    // Improves the best start as far as possible, and others with the remaining steps.
    void improve_starts(planning &run, search &moves, const std::vector<start_plan> &plans) {
        uint32_t improved = 0;
        double cost_before = -moorage::joint::infinity;
        for (const start_plan &plan : plans) {
            if (run.best.empty() || plan.cost < run.best_cost)
                run.best = plan.placement, run.best_cost = plan.cost, run.best_start = plan.number;
            if (moves.spent() || proven(run) || improved == starts_max) continue;
            // Two policies often have one plan.
            if (plan.cost - cost_before <= search::least_s) continue;
            cost_before = plan.cost;
            ++improved;
            // If sets do not couple experts, the bound often meets the plan.
            const bool close = run.search_state.uses() == 0 && run.bound.enumerated() &&
                               !run.limits_remote && !run.search_state.batched();
            for (int round = 0; round < 6 && close && &plan == &plans[1] && !proven(run); ++round)
                run.bound.ascend(run.best_cost, 20);
            if (proven(run)) continue;
            run.search_state.restore(plan.placement);
            run.search_state.settle();
            moves.improve(/*layers=*/true);
            moves.fill();
            run.search_state.settle();
            if (run.search_state.total() < run.best_cost - search::least_s) {
                run.best = run.search_state.placement(), run.best_cost = run.search_state.total();
                run.best_start = plan.number;
            }
        }
    }
    void disturb(planning &run) {
        // With many servers a try takes long and often leaves something to gain.
        const bool quick = run.bound.enumerated() || run.bound.steps() >= 20;
        search moves(run.search_state, run.cover, run.search_max(run.starts.size()), 2);
        if (moves.spent()) return;
        if (quick && !remote_ && !run.limits_remote && !run.search_state.batched() &&
            run.search_state.uses() * 50 < run.steps_max)
            run.bound.ascend(run.best_cost, 20);
        if (proven(run)) return;
        run.search_state.restore(run.best);
        for (uint64_t fruitless = 0; fruitless < kicks_ && !moves.spent(); ++fruitless) {
            bool better = moves.kick();
            if (better) {
                moves.improve();
                moves.fill();
                run.search_state.settle();
                better = run.search_state.total() < run.best_cost - search::least_s;
            }
            if (better) {
                run.best = run.search_state.placement(), run.best_cost = run.search_state.total();
                fruitless = 0;
            } else {
                run.search_state.restore(run.best);
            }
        }
    }

    void report_facts(planning &run) {
        const double fixed_s = run.latency.fixed_s(),
                     objective_s = fixed_s + run.search_state.latency_s();
        const auto add = [this](const char *name, double value) {
            facts_.push_back({name, value});
        };
        add("objective_s", objective_s);
        if (!run.cover) add("saved_s", run.latency.empty_s() - objective_s);
        add("remote_calls", run.search_state.remote_calls());
        if (!remote_) report_latency_bound(run, objective_s);
        if (remote_ || run.limits_remote) {
            lower_bound bound(run.latency, run.time, {0, 1, 0}, run.cover);
            bound.ascend(run.search_state.remote_calls(), bound.steps());
            const double least = std::max(0.0, bound.value());
            if (!bound.too_large()) add("remote_bound", least);
            if (remote_ && !bound.too_large())
                add("gap", least > 0 ? run.search_state.remote_calls() / least - 1 : 0);
        }
        add("steps", static_cast<double>(run.search_state.work()));
        add("start", run.best_start);
    }
    void report_latency_bound(planning &run, double objective_s) {
        const auto add = [this](const char *name, double value) {
            facts_.push_back({name, value});
        };
        if (run.bound.too_large()) return;
        run.bound.set_weights({1, 0, 0});
        run.bound.ascend(run.search_state.latency_s(), run.bound.steps());
        moorage::joint::layer_bound whole(run.latency, run.time, run.cover);
        const double least_s = whole.value(run.search_state.latency_s(), /*steps=*/100);
        const double bound_s = run.latency.fixed_s() + std::max(run.bound.value(), least_s);
        add("bound_s", bound_s);
        add("gap", bound_s > 0 ? objective_s / bound_s - 1 : 0);
        if (run.cover) return;
        const double saved_s = run.latency.empty_s() - objective_s;
        const double saved_bound_s = run.latency.empty_s() - bound_s;
        add("saved_bound_s", saved_bound_s);
        add("saved_gap", saved_bound_s > 0 ? 1 - saved_s / saved_bound_s : 0);
    }
    [[noreturn]] static void fail(const moorage_cluster &cluster, const moorage_demand &demand) {
        uint64_t needed = 0;
        for (uint32_t model = 0; model < demand.models; ++model) {
            bool wanted = false;
            for (uint32_t home = 0; home < demand.homes; ++home)
                wanted = wanted || demand.host_home_model[size_t{home} * demand.models + model] > 0;
            if (wanted)
                needed += demand.host_expert_bytes[model] *
                          (demand.host_model_first[model + 1] - demand.host_model_first[model]);
        }
        throw std::invalid_argument("joint: one copy of every expert takes " +
                                    std::to_string(needed) + " bytes, the devices have " +
                                    std::to_string(room_bytes(cluster)) +
                                    " and no way was found to fit them in; give them more memory "
                                    "or a cloud");
    }

    const moorage_host *host_;
    const std::string objective_;
    const bool remote_;
    const double remote_s_, load_weight_, payback_s_, move_cost_s_;
    const uint64_t effort_, kicks_;
    std::vector<moorage_fact> facts_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.placement.joint", "1.0.0", joint)

// joint.cpp - our own placement: local search over the exact latency, and a bound that proves how
// much better any other could be.
//
// What is minimised is state.hpp's cost: the latency of moorage/latency.hpp, if wanted with
// remote calls, queueing at devices and links, and what moving copies costs. Plans to start from
// are those of the other policies (starts.hpp), and some that are made in several ways (gain a
// byte; a relaxation's holders; calls of the own homes, with and without a copy of everything
// first; everything everywhere, then what is missed least goes; the plan in force). The best of
// them are improved (search.hpp: add, drop, replace, trade, move, exchange, whole layers, whole
// servers), and what time is left goes into disturbing the best one and improving it again. Where
// millions of sets are known, all that is done on a sample of them first. In the end the best one
// is compared with all that it started from, by the exact latency: it is never worse than a plan
// of another policy, as far as `effort` goes and unless that takes minutes to make of the sets:
// then the others are told of frequencies alone. A plan in force is only left for a better one.
// bound.hpp gives the bound, where layers are small layer_bound.hpp a tighter one.
//
// Facts: objective_s latency of a token, bound_s what no plan can fall below (objective "latency"),
// gap = objective_s / bound_s - 1; saved_s, saved_bound_s and saved_gap the same as savings against
// an empty plan (SlimCaching's F); remote_calls of a token and, with objective "remote",
// remote_bound; steps of evaluation taken; start, the number of the winning way to start. Bounds
// and gaps are left out where experts x servers x servers with homes are more than 2 x 10^8.
//
// Deterministic: no clock, no random numbers but of a fixed seed, limits in steps of evaluation.
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
              std::span<const moorage_copy> current, moorage::copies &out) {
        facts_.clear();
        const latency_model model(cluster, demand);
        const layer_time time(model);
        planning run = planned(model, time, 1);
        uint64_t members = 0;
        model.for_sets(
            [&](uint32_t, double, std::span<const uint32_t> of) { members += of.size(); });
        moorage_demand told = demand;
        if (greedy_times(model, members) > greedy_times_most) told.calls = 0;
        if (members > members_most && effort_ > 0) {
            planning sample =
                planned(model, time, static_cast<uint32_t>(members / (members_most / 2)));
            sample.steps_max = effort_ / 2;
            start(sample, told, current);
            if (!sample.best.empty()) disturb(sample);
            run.hint = sample.best;
            run.of.add_work(sample.of.work());
        }
        start(run, told, current);
        if (run.best.empty()) fail(cluster, demand);
        disturb(run);
        choose(run);
        for (uint32_t x = 0; x < model.experts(); ++x)
            for (uint32_t n = 0; n < cluster.servers; ++n)
                if (run.of.at(x, n) != none) out.push(x, run.of.at(x, n));
        state_facts(run);
    }

    // The seconds that homes save until the next decision pay for the seconds of copying: Prism's
    // Eq. 4 in one unit.
    bool adopt(const moorage_move &move) {
        const latency_model model(*move.host_cluster, *move.host_demand);
        const layer_time time(model);
        state of(model, time, weights());
        hold(of, {move.host_current, move.current_count});
        const double before_s = of.total();
        of.clear();
        hold(of, {move.host_candidate, move.candidate_count});
        return (before_s - of.total()) * tokens_per_s(*move.host_demand) * move.interval_s >
               move.added_s;
    }

    uint32_t facts(std::span<moorage_fact> out) {
        const size_t count = std::min(out.size(), facts_.size());
        std::copy_n(facts_.begin(), count, out.begin());
        return static_cast<uint32_t>(count);
    }

private:
    struct start_plan {
        std::vector<uint32_t> placement;
        double cost;
        uint32_t number;
    };
    struct planning {
        const latency_model &model;
        const layer_time &time;
        state of;
        lower_bound bound;
        const bool cover, both, sampled;
        std::vector<uint32_t> hint = {};  // placement of another search
        std::vector<uint32_t> best = {};  // placement
        double best_cost = moorage::joint::infinity;
        uint32_t best_start = 0;
        std::vector<start_plan> starts = {};
        uint64_t steps_max = 0;  // of evaluation

        // What is left beside the looks at each start that are still to come: one more where costs
        // have changed, and one at the exact cost.
        uint64_t search_max(size_t start_count) const {
            const uint64_t reserved = (2 * start_count + 2) * of.evaluation();
            return steps_max - std::min(steps_max, reserved);
        }
    };

    static constexpr uint32_t starts_max = 8;  // that are improved

    // Sets with more members in all are searched by a sample of them first.
    static constexpr uint64_t members_most = 1'500'000;

    // Above so many, some ten seconds of slim_greedy's, the other policies are told of frequencies
    // alone.
    static constexpr double greedy_times_most = 1e7;

    static uint64_t room_bytes(const moorage_cluster &cluster) {
        return std::accumulate(cluster.host_device_bytes,
                               cluster.host_device_bytes + cluster.devices, uint64_t{0});
    }
    // About how many times of layers slim_greedy asks for: a copy changes what others bring in the
    // sets of its expert, on every server. Where messages dominate it asks for a twentieth.
    static double greedy_times(const latency_model &model, uint64_t members) {
        const moorage_cluster &cluster = model.cluster();
        const moorage_demand &demand = model.demand();
        uint64_t least = UINT64_MAX;
        for (uint32_t m = 0; m < demand.models; ++m)
            least = std::min(least, std::max<uint64_t>(demand.host_expert_bytes[m], 1));
        const double experts = model.experts(), servers = cluster.servers;
        const double fitting = static_cast<double>(room_bytes(cluster) / least);
        const double copies = std::min(fitting, experts * servers);
        return copies * static_cast<double>(members) / experts * servers *
               (model.messages_dominate() ? 0.05 : 1);
    }

    planning planned(const latency_model &model, const layer_time &time, uint32_t stride) const {
        const bool cover = !time.has_cloud();
        return {model,
                time,
                {model, time, weights(), stride},
                {model, time, bounded(), cover, stride},
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
    // What the bound is of: remote calls alone, or the cost without load and moves.
    cost_weights bounded() const {
        if (remote_) return {0, 1, 0};
        return {1, remote_s_, 0};
    }
    static double tokens_per_s(const moorage_demand &demand) {
        double all = 0;
        for (uint32_t h = 0; h < demand.homes; ++h) all += demand.host_home_tokens_per_s[h];
        return all > 0 ? all : demand.homes;
    }
    // Of several copies on a server the fastest counts.
    static void hold(state &of, std::span<const moorage_copy> copies) {
        for (const moorage_copy &copy : copies) {
            const uint32_t n = of.time().server_of(copy.device),
                           m = of.model().model_of(copy.expert);
            const uint32_t there = of.at(copy.expert, n);
            if (there == none || of.time().call_s(copy.device, m) < of.time().call_s(there, m))
                of.put(copy.expert, n, copy.device);
        }
        of.forget();
    }
    static void put(state &of, std::span<const moorage_copy> copies) {
        of.begin_empty();
        hold(of, copies);
        of.end_many();
    }
    void price_moves(planning &run, std::span<const moorage_copy> current) const {
        std::vector<double> added_s;
        for (uint32_t d = 0; d < run.time.devices(); ++d) {
            const double rate = run.model.cluster().host_device_load_bytes_per_s[d];
            const double byte_s = move_cost_s_ > 0 ? move_cost_s_ : rate > 0 ? 1 / rate : 0;
            added_s.push_back(
                payback_s_ > 0 ? byte_s / (payback_s_ * tokens_per_s(run.model.demand())) : 0);
        }
        run.of.set_current(current, added_s);
    }

    // `told`: to the other policies.
    void start(planning &run, const moorage_demand &told, std::span<const moorage_copy> current) {
        std::vector<start_plan> all;
        state &of = run.of;
        search moves(of, run.cover, UINT64_MAX, 1);  // the first plan, whatever it takes
        const auto take = [&](uint32_t number, bool valid) {
            of.forget();
            of.settle();
            if (!valid) return;
            all.push_back({of.placement(), of.total(), number});
            moves.set_limit(run.search_max(all.size()));
        };
        const auto goes_on = [&] {
            return all.empty() || of.work() + of.evaluation() <= run.search_max(all.size() + 1);
        };
        if (!run.hint.empty()) {
            of.restore(run.hint);
            take(8, true);
        }
        const auto by_calls = [&](bool first) {
            if (!goes_on() || (!first && of.sweep() > run.steps_max)) return;  // too much to cover
            of.begin_empty();
            moves.by_calls(first);
            take(first ? 2 : 1, moves.cover());
        };
        // Made whatever `effort` is. Then what costs a look each, so that none of it is missed.
        by_calls(true);
        if (all.empty()) by_calls(false);
        starts others(host_, run.model.cluster(), told);
        if (run.both || goes_on())
            others.prism([&](std::span<const moorage_copy> copies) {
                put(of, copies);
                take(6, true);
            });
        if (run.both) limit(of, all);
        if (!current.empty()) {
            price_moves(run, current);
            put(of, current);
            take(0, moves.shrink() && moves.cover());
        }
        uint32_t number = 10;
        if (!run.sampled)
            others.each(
                [&](std::span<const moorage_copy> copies) {
                    put(of, copies);
                    take(number++, true);
                },
                goes_on);
        if (all.empty() || all.front().number != 1) by_calls(false);
        if (run.hint.empty() && !run.cover && goes_on()) {
            of.clear();
            moves.fill();
            take(3, true);
        }
        if (run.hint.empty() && !run.cover && goes_on()) {
            of.clear();
            moves.pack_all();
            take(7, true);
        }
        if (run.hint.empty() && goes_on()) relax(run, moves, all, take);
        // The cost may have changed since. Sets are remembered, with what was looked at before.
        const bool changed = run.both || !current.empty() || of.uses() != 0;
        for (start_plan &each : all) {
            if (!changed || all.size() == 1) break;
            of.restore(each.placement);
            of.settle();
            each.cost = of.total();
        }
        std::stable_sort(all.begin(), all.end(),
                         [](const start_plan &a, const start_plan &b) { return a.cost < b.cost; });
        improve_starts(run, moves, all);
        run.starts = std::move(all);
    }
    // By the exact cost, of which the search sees no more than the nearest holders.
    void choose(planning &run) const {
        if (run.of.uses() == 0) return run.of.restore(run.best);
        run.of.count_all();
        run.of.restore(run.best);
        run.of.settle();
        run.best_cost = run.of.total();
        for (const start_plan &each : run.starts) {
            if (run.starts.size() == 1) break;
            run.of.restore(each.placement);
            run.of.settle();
            if (run.of.total() >= run.best_cost) continue;
            run.best = each.placement, run.best_cost = run.of.total();
            run.best_start = each.number;
        }
        run.of.restore(run.best);
        run.of.settle();
    }
    // No more remote calls than Prism's plan, or than those by calls where it has none: a
    // thousandth of one above costs as much as all latency.
    static void limit(state &of, const std::vector<start_plan> &all) {
        if (all.empty()) return;
        of.restore(all.back().placement);
        of.limit_remote(of.remote_calls() * (1 + 1e-12), 1000 * of.latency_s());
    }
    // Starts from the relaxation, with remote calls at several prices where they are limited.
    template <class Take>
    void relax(planning &run, search &moves, const std::vector<start_plan> &all, Take take) {
        state &of = run.of;
        if (all.empty() || !run.bound.enumerated()) return all_of(run, moves, take);
        of.restore(all.back().placement);
        const double remote = of.remote_calls(), latency_s = of.latency_s();
        const double rate_s = remote > 0 ? latency_s / remote : 0;
        for (const double part : {0.25, 1.0, 4.0, 0.0}) {
            if (part > 0 && !run.both) continue;
            cost_weights priced = bounded();
            priced.remote_s += part * rate_s;
            if (moves.spent()) return;
            run.bound.weigh(priced);
            run.bound.ascend(priced.latency * latency_s + priced.remote_s * remote,
                             !run.bound.enumerated() ? 20
                             : part > 0              ? 6
                                                     : 40);
            if (!run.bound.enumerated()) continue;
            of.clear();
            of.begin_many();
            for (uint32_t x = 0; x < of.experts(); ++x)
                for (uint32_t n = 0; n < of.servers(); ++n)
                    if ((run.bound.chosen(x) >> n & 1) != 0)
                        of.put(x, n, moves.device_for(x, n, false));
            of.end_many();
            const bool valid = moves.shrink() && moves.cover();
            if (valid) moves.fill();
            take(4, valid);
        }
        all_of(run, moves, take);
    }
    // Starts from everything everywhere.
    template <class Take>
    void all_of(planning &run, search &moves, Take take) {
        state &of = run.of;
        if (of.sweep() * 8 > run.steps_max || moves.spent()) return;
        of.clear();
        moves.put_everywhere();
        const bool valid = moves.shrink() && moves.cover();
        if (valid) moves.fill();
        take(5, valid);
    }
    // Whether the bound leaves nothing to gain. It is that of the cost without load and moves.
    bool proven(const planning &run) const {
        return !remote_ && !run.sampled && !run.of.batched() &&
               run.best_cost - run.bound.value() < 1e-9 * std::abs(run.best_cost);
    }
    // The best one as far as it goes, others with what it leaves.
    void improve_starts(planning &run, search &moves, const std::vector<start_plan> &all) {
        uint32_t improved = 0;
        double cost_before = -moorage::joint::infinity;
        for (const start_plan &each : all) {
            if (run.best.empty() || each.cost < run.best_cost)
                run.best = each.placement, run.best_cost = each.cost, run.best_start = each.number;
            if (moves.spent() || proven(run) || improved == starts_max) continue;
            // Two policies often have one plan.
            if (each.cost - cost_before <= search::least_s) continue;
            cost_before = each.cost;
            ++improved;
            // Where sets do not couple experts the bound often meets the plan.
            const bool close =
                run.of.uses() == 0 && run.bound.enumerated() && !run.both && !run.of.batched();
            for (int i = 0; i < 6 && close && &each == &all[1] && !proven(run); ++i)
                run.bound.ascend(run.best_cost, 20);
            if (proven(run)) continue;
            run.of.restore(each.placement);
            run.of.settle();
            moves.improve(/*layers=*/true);
            moves.fill();
            run.of.settle();
            if (run.of.total() < run.best_cost - search::least_s) {
                run.best = run.of.placement(), run.best_cost = run.of.total();
                run.best_start = each.number;
            }
        }
    }
    void disturb(planning &run) {
        // Of many servers a try takes long, and leaves something to gain all the same.
        const bool quick = run.bound.enumerated() || run.bound.steps() >= 20;
        search moves(run.of, run.cover, run.search_max(run.starts.size()), 2);
        if (moves.spent()) return;
        if (quick && !remote_ && !run.both && !run.of.batched() &&
            run.of.uses() * 50 < run.steps_max)
            run.bound.ascend(run.best_cost, 20);
        if (proven(run)) return;
        run.of.restore(run.best);
        for (uint64_t fruitless = 0; fruitless < kicks_ && !moves.spent(); ++fruitless) {
            bool better = moves.kick();
            if (better) {
                moves.improve();
                moves.fill();
                run.of.settle();
                better = run.of.total() < run.best_cost - search::least_s;
            }
            if (better) {
                run.best = run.of.placement(), run.best_cost = run.of.total();
                fruitless = 0;
            } else {
                run.of.restore(run.best);
            }
        }
    }

    void state_facts(planning &run) {
        const double fixed_s = run.model.fixed_s(), objective_s = fixed_s + run.of.latency_s();
        const auto add = [this](const char *name, double value) {
            facts_.push_back({name, value});
        };
        add("objective_s", objective_s);
        if (!run.cover) add("saved_s", run.model.empty_s() - objective_s);
        add("remote_calls", run.of.remote_calls());
        if (!remote_) state_latency_bound(run, objective_s);
        if (remote_ || run.both) {
            lower_bound bound(run.model, run.time, {0, 1, 0}, run.cover);
            bound.ascend(run.of.remote_calls(), bound.steps());
            const double least = std::max(0.0, bound.value());
            if (!bound.too_large()) add("remote_bound", least);
            if (remote_ && !bound.too_large())
                add("gap", least > 0 ? run.of.remote_calls() / least - 1 : 0);
        }
        add("steps", static_cast<double>(run.of.work()));
        add("start", run.best_start);
    }
    void state_latency_bound(planning &run, double objective_s) {
        const auto add = [this](const char *name, double value) {
            facts_.push_back({name, value});
        };
        if (run.bound.too_large()) return;
        run.bound.weigh({1, 0, 0});
        run.bound.ascend(run.of.latency_s(), run.bound.steps());
        moorage::joint::layer_bound whole(run.model, run.time, run.cover);
        const double least_s = whole.value(run.of.latency_s(), /*steps=*/100);
        const double bound_s = run.model.fixed_s() + std::max(run.bound.value(), least_s);
        add("bound_s", bound_s);
        add("gap", bound_s > 0 ? objective_s / bound_s - 1 : 0);
        if (run.cover) return;
        const double saved_s = run.model.empty_s() - objective_s;
        const double saved_bound_s = run.model.empty_s() - bound_s;
        add("saved_bound_s", saved_bound_s);
        add("saved_gap", saved_bound_s > 0 ? 1 - saved_s / saved_bound_s : 0);
    }
    [[noreturn]] static void fail(const moorage_cluster &cluster, const moorage_demand &demand) {
        uint64_t needed = 0;
        for (uint32_t m = 0; m < demand.models; ++m) {
            bool wanted = false;
            for (uint32_t h = 0; h < demand.homes; ++h)
                wanted = wanted || demand.host_home_model[size_t{h} * demand.models + m] > 0;
            if (wanted)
                needed += demand.host_expert_bytes[m] *
                          (demand.host_model_first[m + 1] - demand.host_model_first[m]);
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

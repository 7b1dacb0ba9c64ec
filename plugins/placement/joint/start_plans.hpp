// start_plans.hpp - makes the plans from which the joint policy starts its search.
#pragma once

#include <algorithm>
#include <vector>

#include "packing.hpp"
#include "planning.hpp"
#include "repairing.hpp"
#include "rival_plans.hpp"

namespace moorage::joint {

// Fills planning::starts as long as steps are left. The first plan is made in any case.
class start_plans {
public:
    // All are borrowed. `search`: without a limit so far. `shown_demand`: what the other policies
    // see.
    start_plans(planning &run, search_context &search, const moorage_host *host,
                const moorage_demand &shown_demand)
        : run_(run),
          state_(run.state),
          search_(search),
          plans_(run.starts),
          rivals_(host, run.latency().cluster(), shown_demand) {}

    // `current`: the plan in force, or empty. In the end the starts are in the order of their cost.
    void make(std::span<const moorage_copy> current) {
        if (!run_.sample_best.empty()) {
            state_.restore(run_.sample_best);
            take(of_sample, true);
        }
        // These are made for every `effort`. Then come the starts that cost one look each, so none
        // of them is missed.
        add_by_calls(/*cover_first=*/true);
        if (plans_.empty()) add_by_calls(/*cover_first=*/false);
        if (run_.options.limits_remote() || has_steps()) add_plan_of_prism();
        if (run_.options.limits_remote()) limit_remote_calls();
        if (!current.empty()) add_plan_in_force(current);
        if (!run_.sampled) add_plans_of_rivals();
        if (plans_.empty() || plans_.front().number != by_calls)
            add_by_calls(/*cover_first=*/false);
        if (run_.sample_best.empty()) add_own_plans();
        order_by_cost(run_.options.limits_remote() || !current.empty() || state_.has_sets());
    }

private:
    // Adds the state's placement.
    void take(uint32_t number, bool valid) {
        state_.forget_changes();
        state_.settle();
        if (!valid) return;
        plans_.push_back({state_.placement(), state_.total(), number});
        search_.set_limit(run_.search_max(plans_.size()));
    }
    bool has_steps() const {
        return plans_.empty() ||
               state_.steps() + state_.evaluation_steps() <= run_.search_max(plans_.size() + 1);
    }

    void add_by_calls(bool cover_first) {
        if (!has_steps()) return;
        if (!cover_first && state_.sweep_steps() > run_.steps_max) return;  // too much to cover
        state_.begin_empty();
        fill_by_calls(search_, cover_first);
        take(cover_first ? one_of_each : by_calls, cover_experts(search_));
    }
    void add_plan_of_prism() {
        rivals_.plan_by_prism([this](std::span<const moorage_copy> copies) {
            set_copies(state_, copies);
            take(plan_of_prism, true);
        });
    }
    // Limits remote calls to those of Prism's plan, or to those of the plan by calls if Prism has
    // none. A thousandth of a call above costs as much as all latency.
    void limit_remote_calls() {
        if (plans_.empty()) return;
        state_.restore(plans_.back().placement);
        state_.limit_remote(state_.remote_calls() * (1 + 1e-12), 1000 * state_.latency_s());
    }
    void add_plan_in_force(std::span<const moorage_copy> current) {
        price_moves(current);
        set_copies(state_, current);
        take(plan_in_force, repair(search_));
    }
    void price_moves(std::span<const moorage_copy> current) {
        const settings &options = run_.options;
        const moorage_cluster &cluster = run_.latency().cluster();
        std::vector<double> added_s;
        for (uint32_t device = 0; device < run_.times().devices(); ++device) {
            const double rate = cluster.host_device_load_bytes_per_s[device];
            const double byte_s = options.move_cost_s > 0 ? options.move_cost_s
                                  : rate > 0              ? 1 / rate
                                                          : 0;
            added_s.push_back(options.payback_s > 0
                                  ? byte_s /
                                        (options.payback_s * tokens_per_s(run_.latency().demand()))
                                  : 0);
        }
        state_.set_current(current, added_s);
    }
    void add_plans_of_rivals() {
        uint32_t number = of_rivals;
        rivals_.for_each_plan(
            [&](std::span<const moorage_copy> copies) {
                set_copies(state_, copies);
                take(number++, true);
            },
            [this] { return has_steps(); });
    }
    // Makes the plans that take many steps.
    void add_own_plans() {
        if (!run_.cover && has_steps()) {
            state_.clear();
            fill(search_);
            take(gain_per_byte, true);
        }
        if (!run_.cover && has_steps()) {
            state_.clear();
            pack_all_devices(search_);
            take(packed, true);
        }
        if (!has_steps()) return;
        if (!plans_.empty() && run_.bound.enumerates() && !add_relaxed()) return;
        add_from_everywhere();
    }
    // Starts from the relaxation, with several prices of remote calls if these are limited. Returns
    // false if no steps are left.
    bool add_relaxed() {
        state_.restore(plans_.back().placement);
        const double remote = state_.remote_calls(), latency_s = state_.latency_s();
        const double rate_s = remote > 0 ? latency_s / remote : 0;
        for (const double part : {0.25, 1.0, 4.0, 0.0}) {
            if (part > 0 && !run_.options.limits_remote()) continue;
            if (search_.is_spent()) return false;
            cost_weights priced = run_.options.bound_weights();
            priced.remote_s += part * rate_s;
            run_.bound.set_weights(priced);
            run_.bound.ascend(priced.latency * latency_s + priced.remote_s * remote,
                              part > 0 ? 6 : 40);
            place_relaxed();
            take_repaired(relaxed);
        }
        return true;
    }
    void place_relaxed() {
        state_.clear();
        state_.begin_bulk();
        for (uint32_t expert = 0; expert < state_.experts(); ++expert)
            for (uint32_t server = 0; server < state_.servers(); ++server)
                if ((run_.bound.chosen(expert) >> server & 1) != 0)
                    state_.put(expert, server,
                               search_.find_device(expert, server, /*with_room=*/false));
        state_.end_bulk();
    }
    void add_from_everywhere() {
        if (state_.sweep_steps() * 8 > run_.steps_max || search_.is_spent()) return;
        state_.clear();
        put_everywhere(search_);
        take_repaired(from_everywhere);
    }
    void take_repaired(uint32_t number) {
        const bool valid = repair(search_);
        if (valid) fill(search_);
        take(number, valid);
    }

    // `has_changed`: costs may have changed since a plan was made. Sets are remembered, with the
    // looks so far.
    void order_by_cost(bool has_changed) {
        for (start_plan &plan : plans_) {
            if (!has_changed || plans_.size() == 1) break;
            state_.restore(plan.placement);
            state_.settle();
            plan.cost = state_.total();
        }
        std::stable_sort(
            plans_.begin(), plans_.end(),
            [](const start_plan &left, const start_plan &right) { return left.cost < right.cost; });
    }

    planning &run_;
    placement_state &state_;
    search_context &search_;
    std::vector<start_plan> &plans_;
    rival_plans rivals_;
};

}  // namespace moorage::joint

// improving.hpp - improves the starts of the joint policy, disturbs the best plan, and chooses.
#pragma once

#include "disturbing.hpp"
#include "local_search.hpp"
#include "planning.hpp"

namespace moorage::joint {

// Improves the best start as far as possible, and others with the remaining steps.
inline void improve_starts(planning &run, search_context &search) {
    constexpr uint32_t starts_most = 8;  // starts that are improved
    uint32_t improved = 0;
    double cost_before = -infinity;
    for (size_t index = 0; index < run.starts.size(); ++index) {
        const start_plan &plan = run.starts[index];
        if (run.best.empty() || plan.cost < run.best_cost)
            run.best = plan.placement, run.best_cost = plan.cost, run.best_start = plan.number;
        if (search.is_spent() || run.is_proven() || improved == starts_most) continue;
        // Two policies often have one plan.
        if (plan.cost - cost_before <= least_gain_s) continue;
        cost_before = plan.cost;
        ++improved;
        // If sets do not couple experts, the bound often meets the plan.
        const bool close = !run.state.has_sets() && run.bound.enumerates() &&
                           !run.options.limits_remote() && !run.state.has_batches();
        for (int round = 0; round < 6 && close && index == 1 && !run.is_proven(); ++round)
            run.bound.ascend(run.best_cost, 20);
        if (run.is_proven()) continue;
        run.state.restore(plan.placement);
        run.state.settle();
        improve(search, /*whole_moves=*/true);
        fill(search);
        run.state.settle();
        if (run.keep_if_better()) run.best_start = plan.number;
    }
}

// Disturbs the best plan and improves it again, until that brings nothing for long.
inline void disturb_best(planning &run) {
    // With many servers a try takes long and often leaves something to gain.
    const bool quick = run.bound.enumerates() || run.bound.affordable_steps() >= 20;
    search_context search(run.state, run.cover, run.search_max(run.starts.size()), /*seed=*/2);
    if (search.is_spent()) return;
    if (quick && !run.options.is_remote() && !run.options.limits_remote() &&
        !run.state.has_batches() && run.state.set_uses() * 50 < run.steps_max)
        run.bound.ascend(run.best_cost, 20);
    if (run.is_proven()) return;
    run.state.restore(run.best);
    for (uint64_t fruitless = 0; fruitless < run.options.kicks && !search.is_spent(); ++fruitless) {
        bool better = disturb_and_repair(search);
        if (better) {
            improve(search, /*whole_moves=*/false);
            fill(search);
            run.state.settle();
            better = run.keep_if_better();
        }
        if (better)
            fruitless = 0;
        else
            run.state.restore(run.best);
    }
}

// Chooses by the exact cost. The search sees only the nearest holders.
inline void choose_best(planning &run) {
    placement_state &state = run.state;
    if (!state.has_sets()) return state.restore(run.best);
    state.count_all_holders();
    state.restore(run.best);
    state.settle();
    run.best_cost = state.total();
    for (const start_plan &plan : run.starts) {
        if (run.starts.size() == 1) break;
        state.restore(plan.placement);
        state.settle();
        if (state.total() >= run.best_cost) continue;
        run.best = plan.placement, run.best_cost = state.total();
        run.best_start = plan.number;
    }
    state.restore(run.best);
    state.settle();
}

}  // namespace moorage::joint

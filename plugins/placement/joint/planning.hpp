// planning.hpp - what one search of the joint policy works on: state, bound, starts and best plan.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "lower_bound.hpp"
#include "search_context.hpp"
#include "settings.hpp"

namespace moorage::joint {

// Adds the copies to the placement. If a server has several copies, the fastest counts.
inline void put_copies(placement_state &state, std::span<const moorage_copy> copies) {
    for (const moorage_copy &copy : copies) {
        const call_times &times = state.times();
        const uint32_t server = times.server_of(copy.device),
                       model = state.latency().model_of(copy.expert);
        const uint32_t held_device = state.device_at(copy.expert, server);
        if (held_device == none ||
            times.call_s(copy.device, model) < times.call_s(held_device, model))
            state.put(copy.expert, server, copy.device);
    }
    state.forget_changes();
}

// The copies become the placement.
inline void set_copies(placement_state &state, std::span<const moorage_copy> copies) {
    state.begin_empty();
    put_copies(state, copies);
    state.end_bulk();
}

// How a start was made. The fact "start" shows the number.
enum start_kind : uint32_t {
    plan_in_force = 0,
    by_calls = 1,         // calls of the own homes
    one_of_each = 2,      // the same after a copy of every expert
    gain_per_byte = 3,    // greedily
    relaxed = 4,          // the holders of the bound's relaxation
    from_everywhere = 5,  // everything everywhere, then the least missed experts leave
    plan_of_prism = 6,
    packed = 7,     // a knapsack for each device
    of_sample = 8,  // the best plan for a sample of the sets
    of_rivals = 10  // from here on: other policies, in the order of rival_plans.hpp
};

struct start_plan {
    std::vector<uint32_t> placement;
    double cost;
    uint32_t number;  // start_kind
};

struct planning {
    // All are borrowed. With `stride` above 1, one set in `stride` stands for all.
    planning(const settings &settings, const latency_model &latency, const call_times &times,
             uint32_t stride)
        : options(settings),
          cover(!times.has_cloud()),
          sampled(stride > 1),
          state(latency, times, settings.weights(), stride),
          bound(latency, times, settings.bound_weights(), cover, stride),
          steps_max(settings.effort) {}

    const latency_model &latency() const { return state.latency(); }
    const call_times &times() const { return state.times(); }

    // The steps left for the search. One more look at each start is reserved if costs have changed,
    // and one at the exact cost.
    uint64_t search_max(size_t start_count) const {
        const uint64_t reserved = (2 * start_count + 2) * state.evaluation_steps();
        return steps_max - std::min(steps_max, reserved);
    }
    // Whether the bound leaves nothing to gain. It bounds the cost without load and moves.
    bool is_proven() const {
        return !options.is_remote() && !sampled && !state.has_batches() &&
               best_cost - bound.value() < 1e-9 * std::abs(best_cost);
    }
    // Keeps the state's placement if it is the best so far.
    bool keep_if_better() {
        if (!(state.total() < best_cost - least_gain_s)) return false;
        best = state.placement(), best_cost = state.total();
        return true;
    }

    const settings &options;
    const bool cover;    // every wanted expert needs a copy
    const bool sampled;  // the search sees a sample of the sets
    placement_state state;
    lower_bound bound;
    uint64_t steps_max;
    std::vector<uint32_t> sample_best;  // placement of another search, on a sample; or empty
    std::vector<start_plan> starts;
    std::vector<uint32_t> best;  // placement; empty: none yet
    double best_cost = infinity;
    uint32_t best_start = 0;
};

}  // namespace moorage::joint

// Goal: budget adapmoe measures misses and accuracy rightly and finds the best division. Method: a
// naive model keeps the history, counts misses of every cache size by a search for the last
// request, and tries every division. The policy's plan must have the least cost of all. There is a
// case by hand, and a test of the time before the first observation.
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <numeric>

#include "any_policy.h"

namespace budget_adapmoe_test {

using namespace moorage::test;

namespace {

// Everything that was asked for, layer by layer.
struct history {
    struct visit {
        std::vector<uint32_t> chosen, predicted;
    };
    std::vector<std::vector<visit>> layers;

    // Distinct experts of the layer since the last request of `expert` before visit `visit_index`,
    // itself included. More than any cache holds if there was none.
    uint32_t distance(uint32_t layer, size_t visit_index, uint32_t expert) const {
        std::vector<uint32_t> since;
        for (size_t i = visit_index; i-- > 0;) {
            const auto &chosen = layers[layer][i].chosen;
            for (size_t n = chosen.size(); n-- > 0;) {
                if (std::find(since.begin(), since.end(), chosen[n]) == since.end())
                    since.push_back(chosen[n]);
                if (chosen[n] == expert) return static_cast<uint32_t>(since.size());
            }
        }
        return std::numeric_limits<uint32_t>::max();
    }

    // Loads on demand a visit, by the formula of the paper for p prefetched experts.
    double cost(uint32_t layer, uint32_t slots, uint32_t p) const {
        double missing = 0, covered = 0, right = 0;
        const auto &visits = layers[layer];
        for (size_t visit_index = 0; visit_index < visits.size(); ++visit_index) {
            uint32_t misses = 0;
            for (const uint32_t expert : visits[visit_index].chosen)
                misses += distance(layer, visit_index, expert) > slots;
            missing += misses;
            covered += std::min(misses, p);
            for (size_t i = 0; i < std::min<size_t>(p, visits[visit_index].predicted.size()); ++i)
                right +=
                    std::count(visits[visit_index].chosen.begin(), visits[visit_index].chosen.end(),
                               visits[visit_index].predicted[i]) > 0;
        }
        const auto count = static_cast<double>(visits.size());
        const double accuracy = p == 0 ? 0 : right / (count * p);
        return (missing - accuracy * covered) / count;
    }
};

double least_cost(const history &seen, uint32_t experts, uint32_t slots, uint32_t p) {
    const auto layers = static_cast<uint32_t>(seen.layers.size());
    const uint32_t least = slots >= layers ? 1 : 0;
    double best = std::numeric_limits<double>::max();
    std::vector<std::vector<double>> costs(layers);
    for (uint32_t layer = 0; layer < layers; ++layer)
        for (uint32_t layer_slots = 0; layer_slots <= experts; ++layer_slots)
            costs[layer].push_back(seen.cost(layer, layer_slots, p));
    const std::function<void(uint32_t, uint32_t, double)> divide = [&](uint32_t layer,
                                                                       uint32_t left, double sum) {
        if (layer == layers) {
            if (left == 0) best = std::min(best, sum);
            return;
        }
        for (uint32_t layer_slots = least; layer_slots <= std::min(experts, left); ++layer_slots)
            divide(layer + 1, left - layer_slots, sum + costs[layer][layer_slots]);
    };
    divide(0, std::min(slots, layers * experts), 0);
    return best;
}

struct planned {
    bool applied;
    std::vector<uint32_t> slots;
    double gain_ns;
};
planned ask(any_policy &policy, const world &test_world, uint32_t slots,
            const std::vector<uint32_t> &now) {
    const uint32_t layers = test_world.limits.layers;
    const moorage_budget_request request{
        sizeof(request),         0, layers, test_world.limits.experts, slots, 1, 0, now.data(),
        test_world.split.data(), 1, 0};
    planned result{false, now, 0};
    std::vector<float> split = test_world.split;
    moorage_budget_plan plan{sizeof(plan), 0, result.slots.data(), split.data(), 0};
    result.applied = policy.budget->plan(policy.plugin, &request, &plan) != 0;
    result.gain_ns = plan.gain_ns;
    CHECK(split == test_world.split);
    return result;
}

void compare(uint64_t seed) {
    std::mt19937_64 generator(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(4), experts = 3 + below(5), k = 1 + below(3);
    const uint32_t p = below(3), slots = 1 + below(layers * experts + 3);
    CAPTURE(seed);
    world test_world(layers, experts, k, false, slots);
    test_world.costs.load_ns = 1000;
    any_policy policy("budget/adapmoe", test_world, {{"prefetched", std::to_string(p)}});
    history seen;
    seen.layers.resize(layers);
    std::vector<uint32_t> now(layers, 0);
    step_data data;
    for (uint64_t index = 0; index < uint64_t{layers} * 40; ++index) {
        const uint32_t layer = static_cast<uint32_t>(index % layers);
        std::vector<std::vector<uint32_t>> chosen;
        for (uint32_t token = 0; token < 1 + below(2); ++token)
            chosen.push_back(draw_distinct(generator, k, std::max(k, experts - layer % 2)));
        fill_step(data, test_world, index, layer, chosen);
        if (layer > 0) {
            data.predicted = draw_distinct(generator, 1 + below(experts), experts);
            data.step.host_predicted = data.predicted.data();
            data.step.prediction_count = static_cast<uint32_t>(data.predicted.size());
        } else {
            data.predicted.clear();
        }
        policy.observe(data.step);
        seen.layers[layer].push_back({data.distinct, data.predicted});
    }
    const planned plan = ask(policy, test_world, slots, now);
    CHECK(plan.applied);
    const uint32_t total = std::accumulate(plan.slots.begin(), plan.slots.end(), 0u);
    CHECK(total == std::min(slots, layers * experts));
    double cost = 0, uncached_cost = 0;
    for (uint32_t layer = 0; layer < layers; ++layer) {
        CHECK(plan.slots[layer] <= experts);
        cost += seen.cost(layer, plan.slots[layer], p);
        uncached_cost += seen.cost(layer, 0, p);
    }
    CHECK(cost == doctest::Approx(least_cost(seen, experts, slots, p)));
    CHECK(plan.gain_ns == doctest::Approx((uncached_cost - cost) * 1000));
    const planned again = ask(policy, test_world, slots, plan.slots);
    CHECK_FALSE(again.applied);
    CHECK(again.slots == plan.slots);
}

}  // namespace

TEST_CASE("the plan is the best of all divisions by measured misses and accuracy") {
    for (uint64_t seed = 0; seed < 300; ++seed) compare(seed);
}

TEST_CASE("a layer that repeats one expert leaves its slots to one that needs them") {
    // Layer 0 always asks for expert 2; layer 1 goes round 0, 1, 2, so nothing below three slots
    // helps it.
    world test_world(2, 4, 1, false, 4);
    any_policy policy("budget/adapmoe", test_world);
    step_data data;
    for (uint64_t index = 0; index < 24; ++index) {
        const auto layer = static_cast<uint32_t>(index % 2);
        fill_step(data, test_world, index, layer, {{layer == 0 ? 2u : uint32_t(index / 2 % 3)}});
        policy.observe(data.step);
    }
    const planned plan = ask(policy, test_world, 4, {2, 2});
    CHECK(plan.applied);
    CHECK(plan.slots == std::vector<uint32_t>{1, 3});
    policy.plugin->reset(policy.plugin);
    CHECK(ask(policy, test_world, 4, {1, 3}).slots == std::vector<uint32_t>{2, 2});
}

TEST_CASE("before anything was seen, the slots are divided evenly") {
    world test_world(3, 4, 1, false, 8);
    any_policy policy("budget/adapmoe", test_world, {{"interval", "7"}});
    const planned plan = ask(policy, test_world, 8, {0, 0, 0});
    CHECK(plan.applied);
    CHECK(plan.slots == std::vector<uint32_t>{3, 3, 2});
    CHECK(policy.budget->interval(policy.plugin) == 7);
    CHECK(ask(policy, test_world, 100, {0, 0, 0}).slots == std::vector<uint32_t>{4, 4, 4});
}

}  // namespace budget_adapmoe_test

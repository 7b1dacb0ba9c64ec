// smoe_router_test.cpp - goal: router `smoe` decides as SMoE's Table II, Section IV-B and Algorithm
// 1, as read in plugins/router/README.md. Method: a naive form of the definitions over sets, on
// random batches with and without ties; the case of Figure 1; every legal output of small cases;
// and properties of any right router.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

#include "policy_drive.h"

namespace smoe_router_test {

using namespace moorage::test;

namespace {

using expert_set = std::set<uint32_t>;

struct route_result {
    std::vector<std::vector<uint32_t>> experts;  // [token][k]
    std::vector<std::vector<uint32_t>> classes;
};

route_result route(driven_policy &policy, drawn_step &step) {
    const moorage_step &table = step.table();
    const size_t count = size_t{table.token_count} * table.top_k;
    std::vector<uint32_t> experts(table.host_chosen, table.host_chosen + count);
    std::vector<float> weights(count, std::numeric_limits<float>::quiet_NaN());
    std::vector<uint8_t> classes(count, MOORAGE_CLASS_TOP);
    moorage_route route_table{sizeof(route_table), 0, experts.data(), weights.data(),
                              classes.data()};
    REQUIRE(policy.router->select(policy.plugin, &table, &route_table) == table.token_count);
    // Substitutes get their weights from the model's own rule.
    CHECK(std::all_of(weights.begin(), weights.end(), [](float w) { return std::isnan(w); }));
    route_result result;
    for (size_t first = 0; first < count; first += table.top_k) {
        result.experts.emplace_back(&experts[first], &experts[first] + table.top_k);
        result.classes.emplace_back(&classes[first], &classes[first] + table.top_k);
    }
    return result;
}

// Table II and the bounds of Section IV-A for one token, of a plain top-k choice.
struct token_sets {
    expert_set active, low, top, eligible;  // eligible: substitutes by score alone

    token_sets(const std::vector<float> &scores, uint32_t k, double alpha) {
        const std::vector<uint32_t> ranked = ranking(scores);
        active.insert(ranked.begin(), ranked.begin() + k);
        top = active;
        if (k == scores.size()) return;
        const double next = scores[ranked[k]];
        for (uint32_t expert = 0; expert < scores.size(); ++expert) {
            const double score = scores[expert];
            if (active.contains(expert) && next <= score && score < (1 + alpha) * next)
                low.insert(expert), top.erase(expert);
            if (!active.contains(expert) && (1 - alpha) * next < score && score <= next)
                eligible.insert(expert);
        }
    }
};

expert_set top_of_batch(const drawn_step &step, double alpha) {
    expert_set result;
    for (const auto &scores : step.scores) result.merge(token_sets(scores, step.top_k, alpha).top);
    return result;
}

// The experts of one token by the definitions.
expert_set expected_experts(const std::vector<float> &scores, uint32_t k, double alpha,
                            const expert_set &inside) {
    const token_sets sets(scores, k, alpha);
    std::vector<uint32_t> need, substitutes;
    for (const uint32_t expert : ranking(scores)) {
        if (sets.low.contains(expert) && !inside.contains(expert)) need.push_back(expert);
        if (sets.eligible.contains(expert) && inside.contains(expert))
            substitutes.push_back(expert);
    }
    expert_set result = sets.active;
    for (size_t i = 0; i < std::min(need.size(), substitutes.size()); ++i) {
        result.erase(need[need.size() - 1 - i]);
        result.insert(substitutes[i]);
    }
    return result;
}

// A batch whose own choice is the plain top-k, over a random residency.
struct random_case {
    policy_world world;
    drawn_step step;
    expert_set resident;

    random_case(std::mt19937_64 &draw, uint32_t tokens_max) {
        world.layers = 2;
        world.experts = 2 + static_cast<uint32_t>(draw() % 14);
        world.top_k = 1 + static_cast<uint32_t>(draw() % std::min(world.experts, 6u));
        if (draw() % 8 == 0) world.top_k = world.experts;
        world.make();
        step.layer = 1;
        step.experts = world.experts;
        step.top_k = world.top_k;
        const auto grid = static_cast<uint32_t>(draw() % 3 == 0 ? 20 : 0);
        for (auto tokens = 1 + draw() % tokens_max; tokens > 0; --tokens) {
            step.scores.push_back(draw_scores(draw, world.experts, grid));
            step.chosen.push_back(ranking(step.scores.back()));
            step.chosen.back().resize(world.top_k);
        }
        const uint64_t share = draw() % 5;
        for (uint32_t expert = 0; expert < world.experts; ++expert) {
            if (draw() % 4 >= share) continue;
            world.state[world.experts + expert] = MOORAGE_WHOLE;
            resident.insert(expert);
        }
    }
    expert_set inside(double alpha) const {
        expert_set result = top_of_batch(step, alpha);
        result.insert(resident.begin(), resident.end());
        return result;
    }
};

route_result route(random_case &drawn, const std::string &alpha) {
    driven_policy policy("router/smoe", "smoe", drawn.world, {{"alpha", alpha}});
    return route(policy, drawn.step);
}

expert_set set_of(const std::vector<uint32_t> &experts) { return {experts.begin(), experts.end()}; }

size_t count_inside(const expert_set &experts, const expert_set &inside) {
    return static_cast<size_t>(std::count_if(experts.begin(), experts.end(),
                                             [&](uint32_t e) { return inside.contains(e); }));
}

// Most experts inside, then the highest score sum. The search covers all outputs that keep the
// top-score experts and replace low ones by eligible ones.
std::pair<size_t, double> best_legal(const std::vector<float> &scores, uint32_t k, double alpha,
                                     const expert_set &inside) {
    const token_sets sets(scores, k, alpha);
    const std::vector<uint32_t> low(sets.low.begin(), sets.low.end());
    std::vector<uint32_t> others;
    for (const uint32_t expert : sets.eligible)
        if (inside.contains(expert)) others.push_back(expert);
    std::pair<size_t, double> best{0, -1};
    for (uint32_t gone = 0; gone < 1u << low.size(); ++gone)
        for (uint32_t come = 0; come < 1u << others.size(); ++come) {
            if (__builtin_popcount(gone) != __builtin_popcount(come)) continue;
            expert_set output = sets.top;
            for (size_t i = 0; i < low.size(); ++i)
                if (!(gone >> i & 1)) output.insert(low[i]);
            for (size_t i = 0; i < others.size(); ++i)
                if (come >> i & 1) output.insert(others[i]);
            double sum = 0;
            for (const uint32_t expert : output) sum += scores[expert];
            best = std::max(best, {count_inside(output, inside), sum});
        }
    return best;
}

const char *const alphas[] = {"0", "0.05", "0.25", "0.3", "0.6", "1"};

}  // namespace

TEST_CASE("the sets and bounds, naively, on random batches") {
    std::mt19937_64 draw(1);
    uint64_t substituted = 0;
    for (uint32_t trial = 0; trial < 3000; ++trial) {
        random_case drawn(draw, 8);
        const std::string alpha = alphas[trial % std::size(alphas)];
        const expert_set inside = drawn.inside(std::stod(alpha));
        const route_result got = route(drawn, alpha);
        for (size_t token = 0; token < drawn.step.scores.size(); ++token) {
            const auto &scores = drawn.step.scores[token];
            const token_sets sets(scores, drawn.step.top_k, std::stod(alpha));
            const expert_set expected =
                expected_experts(scores, drawn.step.top_k, std::stod(alpha), inside);
            CHECK(set_of(got.experts[token]) == expected);
            REQUIRE(expected.size() == drawn.step.top_k);
            for (size_t rank = 0; rank < drawn.step.top_k; ++rank) {
                const uint32_t expert = got.experts[token][rank];
                const uint32_t expected_class = sets.top.contains(expert) ? MOORAGE_CLASS_TOP
                                                : sets.low.contains(expert)
                                                    ? MOORAGE_CLASS_LOW
                                                    : MOORAGE_CLASS_SUBSTITUTE;
                CHECK(got.classes[token][rank] == expected_class);
                if (rank > 0) CHECK(scores[got.experts[token][rank - 1]] >= scores[expert]);
                substituted += expected_class == MOORAGE_CLASS_SUBSTITUTE;
            }
        }
    }
    CHECK(substituted > 1000);
}

TEST_CASE("the best legal output, by trying all of them; Equation 1 for one token") {
    std::mt19937_64 draw(2);
    for (uint32_t trial = 0; trial < 600; ++trial) {
        random_case drawn(draw, 4);
        const std::string alpha = alphas[1 + trial % (std::size(alphas) - 1)];
        const expert_set inside = drawn.inside(std::stod(alpha));
        const route_result got = route(drawn, alpha);
        for (size_t token = 0; token < drawn.step.scores.size(); ++token) {
            const auto &scores = drawn.step.scores[token];
            const expert_set output = set_of(got.experts[token]);
            double sum = 0;
            for (const uint32_t expert : output) sum += scores[expert];
            const auto best = best_legal(scores, drawn.step.top_k, std::stod(alpha), inside);
            CHECK(count_inside(output, inside) == best.first);
            CHECK(sum == doctest::Approx(best.second).epsilon(1e-12));
        }
        if (drawn.step.scores.size() > 1) continue;
        const token_sets sets(drawn.step.scores[0], drawn.step.top_k, std::stod(alpha));
        const size_t low_outside = sets.low.size() - count_inside(sets.low, drawn.resident);
        CHECK(count_inside(set_of(got.experts[0]), drawn.resident) ==
              count_inside(sets.active, drawn.resident) +
                  std::min(low_outside, count_inside(sets.eligible, drawn.resident)));
    }
}

TEST_CASE("figure 1: d and e give way to f and g") {
    // a .. e active, a, b, f, g resident, alpha = 0.2: S is f's score, 0.100. d and e are below
    // 0.120, f and g above 0.080; hits 2 of 5 become 4 of 5, c is loaded.
    policy_world world;
    world.experts = 8;
    world.top_k = 5;
    world.make();
    for (const uint32_t expert : {0, 1, 5, 6}) world.state[expert] = MOORAGE_WHOLE;
    drawn_step step;
    step.experts = 8;
    step.top_k = 5;
    step.scores = {{0.200f, 0.180f, 0.150f, 0.115f, 0.105f, 0.100f, 0.090f, 0.060f}};
    step.chosen = {{0, 1, 2, 3, 4}};
    driven_policy policy("router/smoe", "smoe", world, {{"alpha", "0.2"}});
    const route_result got = route(policy, step);
    CHECK(got.experts[0] == std::vector<uint32_t>{0, 1, 2, 5, 6});
    CHECK(got.classes[0] == std::vector<uint32_t>{MOORAGE_CLASS_TOP, MOORAGE_CLASS_TOP,
                                                  MOORAGE_CLASS_TOP, MOORAGE_CLASS_SUBSTITUTE,
                                                  MOORAGE_CLASS_SUBSTITUTE});
    // With g absent, only the lower of d and e goes.
    world.state[6] = 0;
    const route_result first_route = route(policy, step);
    CHECK(first_route.experts[0] == std::vector<uint32_t>{0, 1, 2, 3, 5});
    CHECK(first_route.classes[0][3] == MOORAGE_CLASS_LOW);
    // h is resident, but at 0.060 not above 0.8 S.
    world.state[7] = MOORAGE_WHOLE;
    CHECK(route(policy, step).experts[0] == first_route.experts[0]);
}

TEST_CASE("another token's top-score expert is as good as resident") {
    // Token 0: low expert 1 (0.21 < 1.3 * 0.2) is absent; 2 (0.2) may stand for it if it is there.
    // Token 1 has 2 as a top-score expert, and comes later in the batch.
    policy_world world;
    world.experts = 4;
    world.top_k = 2;
    world.make();
    drawn_step step;
    step.experts = 4;
    step.top_k = 2;
    step.scores = {{0.5f, 0.21f, 0.2f, 0.09f}};
    step.chosen = {{0, 1}};
    driven_policy policy("router/smoe", "smoe", world, {{"alpha", "0.3"}});
    CHECK(route(policy, step).experts[0] == std::vector<uint32_t>{0, 1});
    step.scores.push_back({0.1f, 0.05f, 0.6f, 0.25f});
    step.chosen.push_back({2, 3});
    const route_result got = route(policy, step);
    CHECK(got.experts[0] == std::vector<uint32_t>{0, 2});
    CHECK(got.experts[1] == std::vector<uint32_t>{2, 3});
}

TEST_CASE("alpha 0, everything resident: the model's own choice, order included") {
    std::mt19937_64 draw(3);
    for (uint32_t trial = 0; trial < 500; ++trial) {
        random_case drawn(draw, 8);
        // The model's own choice need not be the top-k of the gate scores.
        for (auto &chosen : drawn.step.chosen)
            for (uint32_t &expert : chosen) {
                const auto replacement = static_cast<uint32_t>(draw() % drawn.step.experts);
                if (std::find(chosen.begin(), chosen.end(), replacement) == chosen.end())
                    expert = replacement;
            }
        CHECK(route(drawn, "0").experts == drawn.step.chosen);
        std::fill(drawn.world.state.begin(), drawn.world.state.end(), uint8_t{MOORAGE_WHOLE});
        CHECK(route(drawn, "1").experts == drawn.step.chosen);
    }
}

TEST_CASE("a model that chooses by more than the score: what it passed over stays out") {
    std::mt19937_64 draw(4);
    uint64_t substituted = 0;
    for (uint32_t trial = 0; trial < 2000; ++trial) {
        random_case drawn(draw, 1);
        auto &chosen = drawn.step.chosen[0];
        const auto &scores = drawn.step.scores[0];
        // Half of the experts are in groups that were not admitted.
        const std::vector<uint32_t> ranked = ranking(scores);
        chosen.clear();
        expert_set barred;
        for (const uint32_t expert : ranked) {
            if (chosen.size() == drawn.step.top_k) break;
            if (barred.size() + drawn.step.top_k < drawn.step.experts && draw() % 2)
                barred.insert(expert);
            else
                chosen.push_back(expert);
        }
        const route_result got = route(drawn, "0.6");
        const expert_set old_set = set_of(chosen), new_set = set_of(got.experts[0]);
        CHECK(new_set.size() == drawn.step.top_k);
        const float lowest = scores[chosen.back()];
        for (const uint32_t expert : new_set) {
            if (old_set.contains(expert)) continue;
            ++substituted;
            CHECK(scores[expert] <= lowest);
            CHECK(drawn.resident.contains(expert));
        }
        CHECK(count_inside(new_set, drawn.resident) >= count_inside(old_set, drawn.resident));
    }
    CHECK(substituted > 100);
}

TEST_CASE("misses of one token never rise with alpha") {
    std::mt19937_64 draw(5);
    for (uint32_t trial = 0; trial < 400; ++trial) {
        random_case drawn(draw, 1);
        size_t hits = 0;
        for (const char *alpha : alphas) {
            const size_t now = count_inside(set_of(route(drawn, alpha).experts[0]), drawn.resident);
            CHECK(now >= hits);
            hits = now;
        }
    }
}

TEST_CASE("what counts as resident") {
    policy_world world;
    world.experts = 3;
    world.top_k = 1;
    world.make();
    drawn_step step;
    step.experts = 3;
    step.top_k = 1;
    step.scores = {{0.3f, 0.29f, 0.1f}};
    step.chosen = {{0}};
    const auto substitutes = [&](int state, const char *resident) {
        world.state[1] = state;
        driven_policy policy("router/smoe", "smoe", world, {{"resident", resident}});
        return route(policy, step).experts[0][0] == 1;
    };
    const int whole = MOORAGE_WHOLE, bottom = MOORAGE_SEGMENT(1, 2);
    const int buffered = MOORAGE_STATE_BUFFERED;
    const int flying = MOORAGE_STATE_IN_FLIGHT;
    for (const char *resident : {"any", "whole"}) {
        CHECK(substitutes(MOORAGE_WHOLE, resident));
        CHECK(substitutes(whole | MOORAGE_STATE_PINNED, resident));
        CHECK(substitutes(whole | buffered, resident));
        CHECK(substitutes(buffered, resident));
        CHECK_FALSE(substitutes(buffered | flying, resident));
        CHECK_FALSE(substitutes(flying, resident));
        CHECK_FALSE(substitutes(0, resident));
        // The top in a slot, the bottom from the buffer.
        CHECK(substitutes(whole | bottom << MOORAGE_STATE_BUFFERED_SHIFT, resident));
    }
    CHECK(substitutes(MOORAGE_SEGMENT(0, 2), "any"));
    CHECK_FALSE(substitutes(MOORAGE_SEGMENT(0, 2), "whole"));
}

TEST_CASE("prefill can be left alone; without gate scores the model's choice stands") {
    policy_world world;
    world.experts = 3;
    world.top_k = 1;
    world.make();
    world.state[1] = MOORAGE_WHOLE;
    drawn_step step;
    step.experts = 3;
    step.top_k = 1;
    step.scores = {{0.3f, 0.29f, 0.1f}};
    step.chosen = {{0}};
    step.phase = MOORAGE_PREFILL;
    driven_policy both_phases("router/smoe", "smoe", world);
    CHECK(route(both_phases, step).experts[0][0] == 1);
    driven_policy decode("router/smoe", "smoe", world, {{"prefill", "0"}});
    moorage_step table = step.table();
    uint32_t expert = 0;
    float weight = 0;
    uint8_t kind = 0;
    moorage_route route_table{sizeof(route_table), 0, &expert, &weight, &kind};
    CHECK(decode.router->select(decode.plugin, &table, &route_table) == 0);
    table.host_gate_scores = nullptr;
    CHECK(both_phases.router->select(both_phases.plugin, &table, &route_table) == 0);
    CHECK((both_phases.about->flags & MOORAGE_POLICY_LOSSY) != 0);
    CHECK(both_phases.about->needs == MOORAGE_NEEDS_GATE_SCORES);
}

}  // namespace smoe_router_test

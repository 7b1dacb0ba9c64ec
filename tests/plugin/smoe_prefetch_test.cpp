// smoe_prefetch_test.cpp - goal: prefetch `smoe` orders exactly the experts that are predicted to
// be top-score, best first, as far as the buffer goes. Method: the definition naively over random
// predictions of random batches, and cases by hand.
#include <doctest/doctest.h>

#include <set>

#include "order_bytes.h"
#include "policy_drive.h"

namespace smoe_prefetch_test {

using namespace moorage::test;

namespace {

struct ordered {
    std::vector<uint32_t> pages;
    std::vector<uint32_t> segments;
};

// Predictions of some tokens for layer 1, each a list best first.
struct prediction {
    std::vector<std::vector<uint32_t>> experts;
    std::vector<std::vector<float>> scores;  // by expert
    uint32_t width = 0;                      // predictions of a token at most
    bool scored = true;
    uint32_t buffer_free = 100;
};

std::vector<float> scores_of(const prediction &input, size_t token) {
    std::vector<float> scores;
    for (const uint32_t expert : input.experts[token])
        scores.push_back(input.scores[token][expert]);
    return scores;
}

// By token, or `merged` as of one token.
ordered plan(driven_policy &policy, const policy_world &world, const prediction &input,
             bool merged = false) {
    std::vector<uint32_t> lists;
    std::vector<float> list_scores;
    for (size_t token = 0; token < input.experts.size(); ++token)
        for (uint32_t rank = 0; rank < input.width; ++rank) {
            const bool ended = rank >= input.experts[token].size();
            lists.push_back(ended ? MOORAGE_NONE : input.experts[token][rank]);
            list_scores.push_back(ended ? 0 : input.scores[token][input.experts[token][rank]]);
        }
    const std::vector<float> flat = scores_of(input, 0);
    const uint32_t layer = 1, offsets[] = {0, static_cast<uint32_t>(flat.size())};
    moorage_forecast forecast{};
    forecast.size = sizeof(forecast);
    forecast.target_count = 1;
    forecast.buffer_free = input.buffer_free;
    forecast.host_layers = &layer;
    forecast.host_offsets = offsets;
    forecast.host_experts = input.experts[0].data();
    forecast.host_scores = input.scored ? flat.data() : nullptr;
    if (!merged) {
        forecast.token_count = static_cast<uint32_t>(input.experts.size());
        forecast.token_predictions = input.width;
        forecast.host_token_experts = lists.data();
        forecast.host_token_scores = input.scored ? list_scores.data() : nullptr;
    }
    std::vector<uint32_t> pages(world.experts);
    std::vector<uint8_t> segments(world.experts, MOORAGE_WHOLE);
    moorage_orders orders{
        sizeof(orders), 0, world.experts, 0, pages.data(), segments.data(), order_bytes(),
        order_bytes()};
    moorage_step step{};
    step.size = sizeof(step);
    step.top_k = world.top_k;
    step.experts = world.experts;
    pages.resize(policy.prefetch->plan(policy.plugin, &step, &forecast, &orders));
    return {pages,
            {segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(pages.size())}};
}

}  // namespace

TEST_CASE("the definition, naively, on random predictions") {
    std::mt19937_64 draw(1);
    uint64_t orders = 0, partial = 0;
    for (uint32_t trial = 0; trial < 3000; ++trial) {
        policy_world world;
        world.layers = 2;
        world.experts = 2 + static_cast<uint32_t>(draw() % 14);
        world.top_k = 1 + static_cast<uint32_t>(draw() % std::min(world.experts, 6u));
        world.make();
        for (uint32_t expert = 0; expert < world.experts; ++expert)
            if (draw() % 3 == 0) world.state[world.experts + expert] = MOORAGE_WHOLE;
        const double alphas[] = {0, 0.25, 0.3, 1};
        const double alpha = alphas[trial % 4];
        driven_policy policy("prefetch/smoe", "smoe", world, {{"alpha", std::to_string(alpha)}});
        prediction input;
        input.width = 1 + static_cast<uint32_t>(draw() % world.experts);
        input.buffer_free = static_cast<uint32_t>(draw() % 6);
        for (uint64_t tokens = 1 + draw() % 8; tokens > 0; --tokens) {
            input.scores.push_back(draw_scores(draw, world.experts, trial % 3 ? 0 : 20));
            input.experts.push_back(ranking(input.scores.back()));
            input.experts.back().resize(draw() % 4 ? input.width : draw() % (input.width + 1));
        }
        // Best score among the tokens for which it is top-score.
        std::vector<float> best(world.experts, -1);
        for (size_t token = 0; token < input.experts.size(); ++token) {
            const auto &list = input.experts[token];
            const auto &scores = input.scores[token];
            for (size_t rank = 0; rank < std::min<size_t>(world.top_k, list.size()); ++rank) {
                const bool known = list.size() > world.top_k;
                if (known && static_cast<double>(scores[list[rank]]) <
                                 (1 + alpha) * static_cast<double>(scores[list[world.top_k]]))
                    continue;
                best[list[rank]] = std::max(best[list[rank]], scores[list[rank]]);
            }
        }
        std::vector<uint32_t> expected;
        for (const uint32_t expert : ranking(best))
            if (best[expert] >= 0 && world.state[world.experts + expert] == 0 &&
                expected.size() < input.buffer_free)
                expected.push_back(world.experts + expert);
        const ordered got = plan(policy, world, input);
        CHECK(got.pages == expected);
        orders += expected.size();
        partial += expected.size() == input.buffer_free;
        if (input.experts.size() == 1)
            CHECK(plan(policy, world, input, /*merged=*/true).pages == expected);
    }
    CHECK(orders > 1000);
    CHECK(partial > 100);
}

TEST_CASE("by hand: k = 2, alpha 0.3") {
    policy_world world;
    world.layers = 2;
    world.experts = 6;
    world.make();
    driven_policy policy("prefetch/smoe", "smoe", world);
    // S = 0.2 and 0.1: of token 0 expert 4 (0.5; 1 has 0.25 < 0.26), of token 1 both 1 and 4.
    prediction input;
    input.width = 3;
    input.experts = {{4, 1, 0}, {1, 4, 2}};
    input.scores = {{0.2f, 0.25f, 0, 0, 0.5f, 0}, {0, 0.45f, 0.1f, 0, 0.3f, 0}};
    CHECK(plan(policy, world, input).pages == std::vector<uint32_t>{6 + 4, 6 + 1});
    input.experts.pop_back();
    input.scores.pop_back();
    CHECK(plan(policy, world, input).pages == std::vector<uint32_t>{6 + 4});
    // Merged: without the lists by token. Not scored: only the top-k is known.
    CHECK(plan(policy, world, input, /*merged=*/true).pages == std::vector<uint32_t>{6 + 4});
    input.scored = false;
    CHECK(plan(policy, world, input).pages == std::vector<uint32_t>{6 + 4, 6 + 1});
    CHECK(plan(policy, world, input, /*merged=*/true).pages == std::vector<uint32_t>{6 + 4, 6 + 1});
    // Only the absent part of a split expert is ordered. Nothing is ordered of an expert on its
    // way.
    world.state[6 + 4] = MOORAGE_SEGMENT(0, 2);
    world.state[6 + 1] = MOORAGE_STATE_IN_FLIGHT;
    const ordered split = plan(policy, world, input);
    CHECK(split.pages == std::vector<uint32_t>{6 + 4});
    CHECK(split.segments == std::vector<uint32_t>{MOORAGE_SEGMENT(1, 2)});
}

TEST_CASE("one layer ahead; what it asks the source to predict from") {
    policy_world world;
    world.make();
    driven_policy usual("prefetch/smoe", "smoe", world);
    CHECK(usual.prefetch->horizon(usual.plugin) == 1);
    CHECK(usual.prefetch->prediction(usual.plugin) == MOORAGE_FROM_RESIDENT);
    driven_policy from_activation("prefetch/smoe", "smoe", world, {{"from_resident", "0"}});
    CHECK(from_activation.prefetch->prediction(from_activation.plugin) == MOORAGE_FROM_ACTIVATION);
    CHECK(usual.about->needs == MOORAGE_NEEDS_PREDICTIONS);
    CHECK((usual.about->flags & MOORAGE_POLICY_LOSSY) == 0);
}

}  // namespace smoe_prefetch_test

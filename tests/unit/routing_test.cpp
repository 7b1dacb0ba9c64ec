// routing_test.cpp - goal: every rule of routing chooses and weighs as its model does. Method:
// logits whose exponentials are plain numbers (logarithms), so that scores and weights are worked
// out by hand; ties, groups at their edges, and random agreement of choose with weigh.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/model/routing.h"

namespace routing_test {

using namespace moorage::core;

namespace {

struct choice {
    std::vector<uint32_t> chosen;
    std::vector<float> weights;
};

model_config model_of(score_kind score, uint32_t experts, uint32_t top_k) {
    model_config config;
    config.experts = experts;
    config.top_k = top_k;
    config.router.score = score;
    return config;
}

choice choose(const model_config &config, const std::vector<float> &logits,
              const std::vector<float> &correction = {}) {
    choice result{std::vector<uint32_t>(config.top_k), std::vector<float>(config.top_k)};
    routing_rule(config).choose(logits, correction, result.chosen, result.weights);
    return result;
}

void near(const std::vector<float> &is, const std::vector<double> &expected) {
    REQUIRE(is.size() == expected.size());
    for (size_t i = 0; i < is.size(); ++i)
        CHECK(is[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

// Logits whose softmax is the numbers over their sum.
std::vector<float> logs(const std::vector<double> &numbers) {
    std::vector<float> result;
    for (const double number : numbers) result.push_back(static_cast<float>(std::log(number)));
    return result;
}

// The logits whose sigmoids are the given numbers.
std::vector<float> logits_of(const std::vector<double> &sigmoids) {
    std::vector<float> result;
    for (const double value : sigmoids)
        result.push_back(static_cast<float>(std::log(value / (1 - value))));
    return result;
}

using chosen = std::vector<uint32_t>;

}  // namespace

TEST_CASE("softmax over all, then the best") {
    model_config config = model_of(score_kind::softmax, 5, 2);
    const std::vector<float> logits = logs({1, 4, 2, 8, 5});
    SUBCASE("as they are") {
        const choice got = choose(config, logits);
        CHECK(got.chosen == chosen{3, 4});
        near(got.weights, {0.4, 0.25});
    }
    SUBCASE("normalised and scaled") {
        config.router.normalise = true;
        config.router.scale = 2.6;
        near(choose(config, logits).weights, {1.6, 1.0});
    }
    SUBCASE("scores") {
        std::vector<float> scores(5);
        routing_rule(config).scores(logits, scores);
        near(scores, {0.05, 0.2, 0.1, 0.4, 0.25});
    }
    SUBCASE("large logits do not overflow") {
        const choice got = choose(config, {1e30f, 0, -1e30f, 0, 0});
        CHECK(got.chosen == chosen{0, 1});
        near(got.weights, {1, 0});
    }
}

TEST_CASE("ties go to the smaller expert") {
    const model_config config = model_of(score_kind::softmax, 6, 3);
    CHECK(choose(config, {1, 1, 1, 1, 1, 1}).chosen == chosen{0, 1, 2});
    CHECK(choose(config, {0, 1, 0, 2, 1, 1}).chosen == chosen{3, 1, 4});
}

TEST_CASE("softmax over the chosen") {
    const model_config config = model_of(score_kind::softmax_of_chosen, 4, 2);
    const choice got = choose(config, logs({1, 6, 100, 2}));
    CHECK(got.chosen == chosen{2, 1});
    near(got.weights, {100 / 106.0, 6 / 106.0});
    std::vector<float> scores(4);
    routing_rule(config).scores(logs({1, 6, 91, 2}), scores);
    near(scores, {0.01, 0.06, 0.91, 0.02});
}

TEST_CASE("sigmoid with a correction that chooses but does not weigh") {
    model_config config = model_of(score_kind::sigmoid, 4, 2);
    config.router.correction_bias = true;
    config.router.scale = 2.5;
    const std::vector<float> logits = logits_of({0.2, 0.9, 0.6, 0.5});
    CHECK(choose(config, logits).chosen == chosen{1, 2});
    const choice got = choose(config, logits, {1, 0, 0, 0.2f});  // 1.2, 0.9, 0.6, 0.7
    CHECK(got.chosen == chosen{0, 1});
    near(got.weights, {0.5, 2.25});
    config.router.normalise = true;
    near(choose(config, logits, {1, 0, 0, 0.2f}).weights, {2.5 * 2 / 11, 2.5 * 9 / 11});
    std::vector<float> scores(4);
    routing_rule(config).scores(logits, scores);
    near(scores, {0.2, 0.9, 0.6, 0.5});
}

TEST_CASE("sigmoids that are all zero give no weight, not a fault") {
    model_config config = model_of(score_kind::sigmoid, 2, 2);
    config.router.normalise = true;
    const choice got = choose(config, {-1e30f, -1e30f});
    near(got.weights, {0, 0});
}

TEST_CASE("groups by their best expert") {
    model_config config = model_of(score_kind::softmax, 6, 2);
    config.router.groups = 3;
    config.router.groups_chosen = 1;
    config.router.group = group_rule::best;
    // Groups {10, 1}, {9, 8}, {2, 2}: the first has the best one, so its 1 goes before 9 and 8.
    const choice got = choose(config, logs({10, 1, 9, 8, 2, 2}));
    CHECK(got.chosen == chosen{0, 1});
    near(got.weights, {10 / 32.0, 1 / 32.0});
    config.router.groups_chosen = 2;
    CHECK(choose(config, logs({10, 1, 9, 8, 2, 2})).chosen == chosen{0, 2});
    config.router.groups_chosen = 3;
    CHECK(choose(config, logs({1, 1, 2, 8, 9, 2})).chosen == chosen{4, 3});
}

TEST_CASE("groups by the sum of their best two corrected scores") {
    model_config config = model_of(score_kind::sigmoid, 6, 2);
    config.router.groups = 2;
    config.router.groups_chosen = 1;
    config.router.group = group_rule::best_two;
    // {0.9, 0.1, 0.1} has 1.0, {0.6, 0.5, 0.4} has 1.1.
    const std::vector<float> logits = logits_of({0.9, 0.1, 0.1, 0.6, 0.5, 0.4});
    const choice got = choose(config, logits);
    CHECK(got.chosen == chosen{3, 4});
    near(got.weights, {0.6, 0.5});
    // A correction lifts the first group: 0.9 + 0.3 = 1.2.
    CHECK(choose(config, logits, {0, 0, 0.2f, 0, 0, 0}).chosen == chosen{0, 2});
    // Corrections below zero do not let experts of other groups in.
    CHECK(choose(config, logits, {-2, -2, -2, -3, -3, -3}).chosen == chosen{0, 1});
}

TEST_CASE("sparsemixer: a threshold around the best, then around the second") {
    model_config config = model_of(score_kind::sparsemixer, 4, 2);
    config.router.jitter = 0.01;
    SUBCASE("far apart: each alone") {
        const choice got = choose(config, {4, 2, 1, 3});
        CHECK(got.chosen == chosen{0, 3});
        near(got.weights, {1, 1});
    }
    SUBCASE("within two hundredths: they share") {
        // Below 4 by 0.06: 0.015 of it, kept. For the second, 3.94 against 3.9: 0.0102, kept; 3.8
        // is 0.0355 below, masked in both.
        const choice got = choose(config, {3.94f, 4, 3.8f, 3.9f});
        CHECK(got.chosen == chosen{1, 0});
        // 4 - 3.9 = 0.1 is 0.025 of 4: masked in the first round.
        near(got.weights, {1 / (1 + std::exp(-0.06)), 1 / (1 + std::exp(-0.04))});
    }
    SUBCASE("negative logits are measured by their own magnitude") {
        // (-1 + 1.01) / 1.01 = 0.0099 is kept, (-1 + 1.5) / 1.5 is not.
        const choice got = choose(config, {-1.5f, -1, -1.01f, -9});
        CHECK(got.chosen == chosen{1, 2});
        near(got.weights, {1 / (1 + std::exp(-0.01)), 1});
    }
    SUBCASE("all zero: nothing is further below than the threshold") {
        const choice got = choose(config, {0, 0, 0, 0});
        CHECK(got.chosen == chosen{0, 1});
        near(got.weights, {1 / 4.0, 1 / 3.0});
    }
    SUBCASE("scores are the softmax over all") {
        std::vector<float> scores(4);
        routing_rule(config).scores(logs({1, 2, 3, 4}), scores);
        near(scores, {0.1, 0.2, 0.3, 0.4});
    }
}

TEST_CASE("weights of another choice") {
    const std::vector<float> logits = logs({1, 4, 2, 8, 5});
    std::vector<float> weights(3);
    SUBCASE("softmax") {
        model_config config = model_of(score_kind::softmax, 5, 2);
        routing_rule(config).weigh(logits, chosen{0, 3, 2}, weights);
        near(weights, {0.05, 0.4, 0.1});
        config.router.normalise = true;
        routing_rule(config).weigh(logits, chosen{0, 3, 2}, weights);
        near(weights, {1 / 11.0, 8 / 11.0, 2 / 11.0});
    }
    SUBCASE("softmax of chosen") {
        routing_rule(model_of(score_kind::softmax_of_chosen, 5, 2))
            .weigh(logits, chosen{0, 3, 2}, weights);
        near(weights, {1 / 11.0, 8 / 11.0, 2 / 11.0});
    }
    SUBCASE("no expert has no weight and takes none from the others") {
        model_config config = model_of(score_kind::softmax, 5, 3);
        config.router.normalise = true;
        routing_rule(config).weigh(logits, chosen{UINT32_MAX, 3, 2}, weights);
        near(weights, {0, 0.8, 0.2});
    }
}

TEST_CASE("choose weighs as weigh does, and best first") {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const score_kind score : {score_kind::softmax, score_kind::sigmoid,
                                   score_kind::softmax_of_chosen, score_kind::sparsemixer}) {
        model_config config = model_of(score, 16, 4);
        config.router.normalise = score == score_kind::sigmoid;
        config.router.jitter = 0.01;
        for (int round = 0; round < 50; ++round) {
            std::vector<float> logits(16), weights(4);
            for (float &logit : logits) logit = normal(random);
            const choice got = choose(config, logits);
            routing_rule(config).weigh(logits, got.chosen, weights);
            CHECK(weights == got.weights);
            for (size_t rank = 1; rank < 4; ++rank) {
                CHECK(logits[got.chosen[rank]] <= logits[got.chosen[rank - 1]]);
                if (score != score_kind::sparsemixer) CHECK(weights[rank] <= weights[rank - 1]);
            }
        }
    }
}

}  // namespace routing_test

// sampler_test.cpp - goal: the next token is the most probable one, or drawn from exactly the
// distribution that temperature, top_k and top_p leave. Method: distributions of a few tokens
// worked by hand, and counts of many draws against them; likelihoods against sums by hand.
#include "core/source/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sampler_test {

using namespace moorage::core;

namespace {

constexpr int draws = 40'000;

// Shares of the tokens among many draws.
std::vector<double> shares(const sampling &how, const std::vector<float> &logits) {
    sampler draw(how);
    random_stream from = draw.draws_of(0);
    std::vector<double> counted(logits.size(), 0);
    for (int i = 0; i < draws; ++i) counted[static_cast<size_t>(draw(logits, from))] += 1.0 / draws;
    return counted;
}

// Six standard deviations of a share near p, and exactly none where p is 0.
void check_shares(const std::vector<double> &counted, const std::vector<double> &expected) {
    REQUIRE(counted.size() == expected.size());
    for (size_t id = 0; id < counted.size(); ++id) {
        CAPTURE(id);
        const double p = expected[id];
        if (p == 0) CHECK(counted[id] == 0);
        CHECK(std::abs(counted[id] - p) <= 6 * std::sqrt(p * (1 - p) / draws) + 1e-9);
    }
}

std::vector<float> logs_of(const std::vector<double> &probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}

// Tokens out of order, so that ranks are not ids: 0.15, 0.5, 0.05, 0.3.
const std::vector<float> four = logs_of({0.15, 0.5, 0.05, 0.3});

}  // namespace

TEST_CASE("the most probable token, the first of equals, wherever it stands in whatever length") {
    for (const size_t count : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 200u})
        for (size_t place = 0; place < count; ++place) {
            std::vector<float> logits(count, -1e30f);
            logits[place] = -7;
            logits[count - 1] = -7;
            CHECK(most_probable(logits) == static_cast<int32_t>(place));
        }
    CHECK(most_probable(std::vector<float>{-0.0f, 0.0f}) == 0);
}

TEST_CASE("greedy: the most probable, the smaller id among equals") {
    CHECK(most_probable(std::vector<float>{1, 3, 2}) == 1);
    CHECK(most_probable(std::vector<float>{2, 3, 3}) == 1);
    CHECK(most_probable(std::vector<float>{-5, -5, -5}) == 0);
    CHECK(most_probable(std::vector<float>{7}) == 0);
    sampler greedy({.temperature = 0, .top_p = 0.3, .top_k = 3, .seed = 9});
    random_stream from = greedy.draws_of(0);
    for (int i = 0; i < 20; ++i) CHECK(greedy(std::vector<float>{2, 3, 3}, from) == 1);
}

TEST_CASE("the likelihood of a token") {
    // Logits ln 1, ln 2, ln 5: probabilities 1/8, 2/8, 5/8.
    const std::vector<float> logits = logs_of({1, 2, 5});
    CHECK(negative_log_likelihood(logits, 0) == doctest::Approx(std::log(8)).epsilon(1e-6));
    CHECK(negative_log_likelihood(logits, 1) == doctest::Approx(std::log(4)).epsilon(1e-6));
    CHECK(negative_log_likelihood(logits, 2) == doctest::Approx(std::log(1.6)).epsilon(1e-6));
    // All the same: ln of the count, however large the logits are.
    for (const float level : {0.0f, 1e4f, -1e4f, 3e38f})
        CHECK(negative_log_likelihood(std::vector<float>(16, level), 3) ==
              doctest::Approx(std::log(16)));
    // A token with no chance to speak of: the difference of the logits.
    CHECK(negative_log_likelihood(std::vector<float>{1000, 0}, 1) == doctest::Approx(1000));
    CHECK(negative_log_likelihood(std::vector<float>{1000, 0}, 0) == doctest::Approx(0));
}

TEST_CASE("temperature 1 draws what the model says, others sharpen and flatten it") {
    check_shares(shares({.temperature = 1, .seed = 1}, four), {0.15, 0.5, 0.05, 0.3});
    // Temperature 1/2 squares: 0.0225, 0.25, 0.0025, 0.09 of 0.365.
    check_shares(shares({.temperature = 0.5, .seed = 2}, four),
                 {0.0225 / 0.365, 0.25 / 0.365, 0.0025 / 0.365, 0.09 / 0.365});
    // Temperature 2 takes roots.
    const double all = std::sqrt(0.15) + std::sqrt(0.5) + std::sqrt(0.05) + std::sqrt(0.3);
    check_shares(
        shares({.temperature = 2, .seed = 3}, four),
        {std::sqrt(0.15) / all, std::sqrt(0.5) / all, std::sqrt(0.05) / all, std::sqrt(0.3) / all});
}

TEST_CASE("top_k keeps the k most probable in their proportions") {
    check_shares(shares({.temperature = 1, .top_k = 2, .seed = 4}, four), {0, 0.625, 0, 0.375});
    check_shares(shares({.temperature = 1, .top_k = 1, .seed = 4}, four), {0, 1, 0, 0});
    check_shares(shares({.temperature = 1, .top_k = 99, .seed = 4}, four), {0.15, 0.5, 0.05, 0.3});
    // Among equals the smaller ids stay.
    const std::vector<float> level(4, 1.5f);
    check_shares(shares({.temperature = 1, .top_k = 3, .seed = 5}, level),
                 {1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
}

TEST_CASE("top_p keeps the fewest that have the mass") {
    // 0.5 alone has less than 0.6 of the mass, 0.5 and 0.3 have it.
    check_shares(shares({.temperature = 1, .top_p = 0.6, .seed = 6}, four), {0, 0.625, 0, 0.375});
    check_shares(shares({.temperature = 1, .top_p = 0.4, .seed = 6}, four), {0, 1, 0, 0});
    check_shares(shares({.temperature = 1, .top_p = 0, .seed = 6}, four), {0, 1, 0, 0});
    check_shares(shares({.temperature = 1, .top_p = 0.9, .seed = 6}, four),
                 {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95});
    check_shares(shares({.temperature = 1, .top_p = 0.999, .seed = 7}, four),
                 {0.15, 0.5, 0.05, 0.3});
    // Of what top_k left: 0.5 is 0.625 of 0.8.
    check_shares(shares({.temperature = 1, .top_p = 0.62, .top_k = 2, .seed = 7}, four),
                 {0, 1, 0, 0});
    check_shares(shares({.temperature = 1, .top_p = 0.63, .top_k = 2, .seed = 7}, four),
                 {0, 0.625, 0, 0.375});
}

TEST_CASE("a seed repeats its draws, another seed or request gives others") {
    const auto drawn = [](uint64_t seed, uint64_t request) {
        sampler draw({.temperature = 1, .seed = seed});
        random_stream from = draw.draws_of(request);
        std::vector<int32_t> ids;
        for (int i = 0; i < 64; ++i) ids.push_back(draw(four, from));
        return ids;
    };
    CHECK(drawn(1, 0) == drawn(1, 0));
    CHECK(drawn(1, 0) != drawn(2, 0));
    CHECK(drawn(1, 0) != drawn(1, 1));
}

TEST_CASE("logits that are no numbers give a token of the vocabulary all the same") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinite = std::numeric_limits<float>::infinity();
    const std::vector<std::vector<float>> odd = {{nan, nan, nan},
                                                 {0, nan, 1},
                                                 {nan, 0, 1},
                                                 {infinite, 0, infinite},
                                                 {-infinite, -infinite, -infinite},
                                                 {infinite, nan, -infinite}};
    for (const std::vector<float> &logits : odd)
        for (const sampling &how :
             {sampling{}, sampling{.temperature = 1}, sampling{.temperature = 1, .top_p = 0.5},
              sampling{.temperature = 1, .top_k = 2}, sampling{.temperature = 1e-300}}) {
            sampler draw(how);
            random_stream from = draw.draws_of(0);
            for (int i = 0; i < 20; ++i) {
                const int32_t id = draw(logits, from);
                CHECK(id >= 0);
                CHECK(id < 3);
            }
        }
}

}  // namespace sampler_test

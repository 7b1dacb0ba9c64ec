// sampler_test.cpp - goal: the next token is the most probable one, or drawn from exactly the
// distribution that penalties, temperature, top_k, top_p and min_p leave. [source] chooses. Method:
// distributions of a few tokens worked by hand, and those of drawn settings by a plain float64
// reference; counts of many draws compared with them; likelihoods compared with sums by hand; small
// configurations.
#include "core/source/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/config_texts.h"

namespace sampler_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

constexpr int draws = 40'000;

// Shares of the tokens among many draws.
std::vector<double> shares(const sampling &options, const std::vector<float> &logits) {
    sampler draw(options);
    random_stream random = draw.draws_of(0);
    std::vector<double> counted(logits.size(), 0);
    for (int i = 0; i < draws; ++i)
        counted[static_cast<size_t>(draw(logits, random))] += 1.0 / draws;
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
    random_stream random = greedy.draws_of(0);
    for (int i = 0; i < 20; ++i) CHECK(greedy(std::vector<float>{2, 3, 3}, random) == 1);
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
    const double total = std::sqrt(0.15) + std::sqrt(0.5) + std::sqrt(0.05) + std::sqrt(0.3);
    check_shares(shares({.temperature = 2, .seed = 3}, four),
                 {std::sqrt(0.15) / total, std::sqrt(0.5) / total, std::sqrt(0.05) / total,
                  std::sqrt(0.3) / total});
}

TEST_CASE("top_k keeps the k most probable in their proportions") {
    check_shares(shares({.temperature = 1, .top_k = 2, .seed = 4}, four), {0, 0.625, 0, 0.375});
    check_shares(shares({.temperature = 1, .top_k = 1, .seed = 4}, four), {0, 1, 0, 0});
    check_shares(shares({.temperature = 1, .top_k = 99, .seed = 4}, four), {0.15, 0.5, 0.05, 0.3});
    // Among equal ones the smaller ids stay.
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
    // top_p applies to the tokens that top_k left: 0.5 is 0.625 of 0.8.
    check_shares(shares({.temperature = 1, .top_p = 0.62, .top_k = 2, .seed = 7}, four),
                 {0, 1, 0, 0});
    check_shares(shares({.temperature = 1, .top_p = 0.63, .top_k = 2, .seed = 7}, four),
                 {0, 0.625, 0, 0.375});
}

TEST_CASE("min_p leaves out what has less than its share of the largest chance") {
    // A share of 0.5, the largest: 0.1 of it is 0.05, 0.2 of it 0.1, 0.5 of it 0.25.
    check_shares(shares({.temperature = 1, .min_p = 0.09, .seed = 8}, four),
                 {0.15, 0.5, 0.05, 0.3});
    check_shares(shares({.temperature = 1, .min_p = 0.2, .seed = 8}, four),
                 {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95});
    check_shares(shares({.temperature = 1, .min_p = 0.5, .seed = 8}, four), {0, 0.625, 0, 0.375});
    check_shares(shares({.temperature = 1, .min_p = 1, .seed = 8}, four), {0, 1, 0, 0});
    // After the temperature: squares 0.0225, 0.25, 0.0025, 0.09; 0.3 of the largest is 0.075.
    check_shares(shares({.temperature = 0.5, .min_p = 0.3, .seed = 8}, four),
                 {0, 0.25 / 0.34, 0, 0.09 / 0.34});
    // Equal chances all stay.
    check_shares(shares({.temperature = 1, .min_p = 1, .seed = 8}, logs_of({0.4, 0.2, 0.4})),
                 {0.5, 0, 0.5});
    // With top_p: that keeps 0.5 and 0.3, min_p 0.5 alone.
    check_shares(shares({.temperature = 1, .top_p = 0.6, .min_p = 0.7, .seed = 8}, four),
                 {0, 1, 0, 0});
}

TEST_CASE("penalties on what is there: divided or multiplied, then taken off") {
    const std::vector<float> logits = {4, -2, 3, 1};
    const auto best = [&](const sampling &options, std::vector<int32_t> prompt,
                          std::vector<int32_t> written) {
        sampler choose(options);
        random_stream random = choose.draws_of(0);
        return choose(logits, random, prompt, written);
    };
    CHECK(best({}, {0, 0, 0}, {0}) == 0);
    CHECK(best({.repetition = 1.3}, {0}, {}) == 0);   // 4 / 1.3 = 3.08
    CHECK(best({.repetition = 1.4}, {0}, {}) == 2);   // 4 / 1.4 = 2.86
    CHECK(best({.repetition = 1.4}, {1}, {0}) == 2);  // written counts like the prompt
    CHECK(best({.repetition = 1.4}, {0}, {2}) == 0);  // 2.86 and 2.14
    CHECK(best({.repetition = 0.9}, {3}, {}) == 0);
    CHECK(best({.presence = 0.9}, {0, 0}, {0}) == 0);   // once, however often: 3.1
    CHECK(best({.presence = 1.1}, {0}, {}) == 2);       // 2.9
    CHECK(best({.frequency = 0.4}, {0}, {0}) == 0);     // 3.2
    CHECK(best({.frequency = 0.4}, {0, 0}, {0}) == 2);  // 2.8
    CHECK(best({.presence = -4}, {3}, {}) == 3);        // a bonus: 5
    // The window is counted from the end: of prompt and text together.
    CHECK(best({.presence = 2, .penalty_window = 2}, {0}, {1, 1}) == 0);
    CHECK(best({.presence = 2, .penalty_window = 3}, {0}, {1, 1}) == 2);
    CHECK(best({.presence = 2, .penalty_window = 1}, {1}, {0}) == 2);
    std::vector<int32_t> long_ago(65, 1);
    long_ago[0] = 0;
    CHECK(best({.presence = 2}, long_ago, {}) == 0);
    CHECK(best({.presence = 2, .penalty_window = 0}, long_ago, {}) == 2);
    // Drawn: logits ln 0.5 and ln 0.5, the first less ln 3: 1/4 and 3/4. Below 0 it is multiplied.
    const std::vector<float> level = logs_of({0.5, 0.5});
    for (const sampling &options :
         {sampling{.temperature = 1, .seed = 3, .presence = std::log(3.0)},
          sampling{.temperature = 1, .seed = 3, .repetition = 1 + std::log(3) / std::log(2)}}) {
        sampler draw(options);
        random_stream random = draw.draws_of(0);
        std::vector<double> counted(2, 0);
        for (int i = 0; i < draws; ++i)
            counted[static_cast<size_t>(draw(level, random, std::vector<int32_t>{0}, {}))] +=
                1.0 / draws;
        check_shares(counted, {0.25, 0.75});
    }
}

namespace {

// The distribution by its definition, with nothing left out for speed.
std::vector<double> reference_shares(const sampling &options, const std::vector<float> &logits) {
    std::vector<double> chance(logits.size());
    for (size_t id = 0; id < logits.size(); ++id)
        chance[id] = std::exp(static_cast<double>(logits[id]) / options.temperature);
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    if (options.top_k != 0 && options.top_k < order.size()) order.resize(options.top_k);
    const auto mass = [&] {
        double sum = 0;
        for (const size_t id : order) sum += chance[id];
        return sum;
    };
    const double whole = mass();
    size_t count = 0;
    for (double sum = 0; count < order.size() && (count == 0 || sum < options.top_p * whole);
         ++count)
        sum += chance[order[count]];
    if (options.top_p < 1) order.resize(count);
    const double largest = chance[order[0]];
    std::erase_if(order, [&](size_t id) { return chance[id] < options.min_p * largest; });
    std::vector<double> result(logits.size(), 0);
    for (const size_t id : order) result[id] = chance[id] / mass();
    return result;
}

}  // namespace

TEST_CASE("drawn settings on drawn logits: as often as the definition says") {
    random_stream random(42, 7);
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        std::vector<float> logits(2 + random.below(40));
        for (float &logit : logits) logit = static_cast<float>(8 * random.unit() - 4);
        const double top_ps[] = {1, 0.95, 0.5, 0.3}, min_ps[] = {0, 0.05, 0.01, 0.4};
        const sampling options = {.temperature = 0.3 + 1.5 * random.unit(),
                                  .top_p = top_ps[random.below(4)],
                                  .top_k = static_cast<uint32_t>(random.below(logits.size() + 2)),
                                  .min_p = min_ps[random.below(4)],
                                  .seed = static_cast<uint64_t>(round)};
        check_shares(shares(options, logits), reference_shares(options, logits));
    }
}

TEST_CASE("a seed repeats its draws, another seed or request gives others") {
    const auto drawn = [](uint64_t seed, uint64_t request) {
        sampler draw({.temperature = 1, .seed = seed});
        random_stream random = draw.draws_of(request);
        std::vector<int32_t> ids;
        for (int i = 0; i < 64; ++i) ids.push_back(draw(four, random));
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
        for (const sampling &options :
             {sampling{}, sampling{.temperature = 1}, sampling{.temperature = 1, .top_p = 0.5},
              sampling{.temperature = 1, .top_k = 2}, sampling{.temperature = 1, .min_p = 0.05},
              sampling{.temperature = 1e-300}}) {
            sampler draw(options);
            random_stream random = draw.draws_of(0);
            for (int i = 0; i < 20; ++i) {
                const int32_t id = draw(logits, random);
                CHECK(id >= 0);
                CHECK(id < 3);
            }
        }
}

TEST_CASE("how tokens are chosen: greedy unless said, defaults of a caller's own") {
    const std::string model = "[hardware]\nprofile = \"h\"\n[source]\nmodel = \"m\"\n";
    run_config config = accepted(model);
    CHECK(config.temperature == 0);
    CHECK(config.min_p == 0);
    CHECK(config.repetition_penalty == 1);
    CHECK(config.presence_penalty == 0);
    CHECK(config.frequency_penalty == 0);
    CHECK(config.penalty_window == 64);
    CHECK_FALSE(config.seed_is_given);
    config = accepted(model +
                      "min_p = 0.1\nrepetition_penalty = 1.5\npresence_penalty = -1\n"
                      "frequency_penalty = 0.25\npenalty_window = 0\n[run]\nseed = 0\n");
    CHECK(config.min_p == 0.1);
    CHECK(config.repetition_penalty == 1.5);
    CHECK(config.presence_penalty == -1);
    CHECK(config.frequency_penalty == 0.25);
    CHECK(config.penalty_window == 0);
    CHECK(config.seed_is_given);
    for (const char *key :
         {"min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "penalty_window"})
        CHECK(holds(refused(least, {std::string("source.") + key + "=1"}), "needs a model"));
    CHECK(holds(refused(model + "min_p = 1.1\n"), "min_p"));
    CHECK(holds(refused(model + "repetition_penalty = 0\n"), "repetition_penalty"));
    run_config usual;
    usual.temperature = 0.8;
    usual.top_p = 0.9;
    const auto mixed = parse_run_config(model + "top_p = 0.5\n", "a.toml", {}, usual);
    REQUIRE(mixed.ok());
    CHECK(mixed->temperature == 0.8);
    CHECK(mixed->top_p == 0.5);
}

TEST_CASE("where texts end: a flag, texts and token ids") {
    const std::string model = "[hardware]\nprofile = \"h\"\n[source]\nmodel = \"m\"\n";
    const auto stop = [&](const char *value) {
        return accepted(model + "stop = " + value + "\n").stop;
    };
    using texts = std::vector<std::string>;
    using ids = std::vector<int32_t>;
    CHECK(stop("true").at_model_ends);
    CHECK_FALSE(stop("false").at_model_ends);
    CHECK(stop("\"a\\nb\"").texts == texts{"a\nb"});
    CHECK(stop("\"a\"").at_model_ends);
    CHECK(stop("5").ids == ids{5});
    CHECK(stop("[\"a\", 3, \"b\", 0]").texts == texts{"a", "b"});
    CHECK(stop("[\"a\", 3, \"b\", 0]").ids == ids{3, 0});
    CHECK(stop("[\"a\", 3]").at_model_ends);
    CHECK_FALSE(stop("[false, 3]").at_model_ends);
    CHECK(accepted(model, {"source.stop=the end"}).stop.texts == texts{"the end"});
    CHECK(accepted(model, {"source.stop=[\"x\", 2]"}).stop.ids == ids{2});
    CHECK(holds(refused(model + "stop = \"\"\n"), "a text to stop at is not empty"));
    CHECK(holds(refused(model + "stop = -1\n"), "a token id is a whole number from 0"));
    CHECK(holds(refused(model + "stop = 2.5\n"), "a list of them is needed"));
    CHECK(holds(refused(model + "stop = [[1]]\n"), "a list of them is needed"));
    CHECK(holds(refused(model + "stop = [\"a\", \"\"]\n"), "not empty"));
}

}  // namespace sampler_test

// Goal: drawn experts are distinct, have the stated frequency, and are the same whenever they are
// asked for. Method: counts of many draws compared with their frequencies, with bounds of five
// standard deviations. Certain cases (always, never, equal) are checked exactly.
#include "tools/cluster/drawn_routing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "core/base/random.h"

namespace drawn_routing_test {

using namespace moorage::core;

namespace {

constexpr uint64_t draws = 40'000;

// How often each expert of a layer is chosen by a token; checks that a token's are distinct.
std::vector<double> counted(const drawn_routing &routing, uint32_t layer, uint64_t seed = 1) {
    std::vector<double> counts(routing.experts(), 0);
    std::vector<uint32_t> chosen(routing.top_k());
    for (uint64_t token = 0; token < draws; ++token) {
        routing.draw(seed, token, layer, chosen.data());
        for (const uint32_t expert : chosen) {
            REQUIRE(expert < routing.experts());
            counts[expert] += 1;
        }
        std::ranges::sort(chosen);
        CHECK(std::ranges::adjacent_find(chosen) == chosen.end());
    }
    return counts;
}

void check_frequency(const std::vector<double> &counts, const std::vector<double> &expected) {
    REQUIRE(counts.size() == expected.size());
    for (size_t expert = 0; expert < counts.size(); ++expert) {
        CAPTURE(expert);
        const double mean = expected[expert] * draws;
        const double deviation = std::sqrt(draws * expected[expert] * (1 - expected[expert]));
        CHECK(std::abs(counts[expert] - mean) <= 5 * deviation + 0.01 * draws / 1e4);
    }
}

}  // namespace

TEST_CASE("experts are drawn as often as their frequency says") {
    std::vector<double> frequency = {
        1, 0.5, 0.25, 0.125, 0.125, 0, 0, 0,   // sums to two
        4, 4,   4,    4,     4,     4, 4, 4,   // to be scaled
        9, 1,   1,    1,     1,     0, 0, 0,   // the first is always chosen
        0, 0,   0,    0,     0,     0, 0, 0,   // nothing is known
        0, 0,   5,    0,     0,     0, 0, 0,   // one is known
        0, 1,   0,    0,     0,     0, 0, 1};  // always these
    const auto routing = drawn_routing::from_frequency(6, 8, 2, frequency, 3);
    REQUIRE(routing.ok());
    check_frequency(counted(*routing, 0), {1, 0.5, 0.25, 0.125, 0.125, 0, 0, 0});
    check_frequency(counted(*routing, 1), std::vector<double>(8, 0.25));
    check_frequency(counted(*routing, 2), {1, 0.25, 0.25, 0.25, 0.25, 0, 0, 0});
    check_frequency(counted(*routing, 3), std::vector<double>(8, 0.25));
    const double rest = 1.0 / 7;
    check_frequency(counted(*routing, 4), {rest, rest, 1, rest, rest, rest, rest, rest});
    check_frequency(counted(*routing, 5), {0, 1, 0, 0, 0, 0, 0, 1});
}

TEST_CASE("random tables of all sizes keep their frequencies") {
    const std::pair<uint32_t, uint32_t> sizes[] = {{1, 1}, {8, 2}, {64, 6}, {256, 8}, {9, 9}};
    for (const auto &size : sizes) {
        const uint32_t experts = size.first, top_k = size.second;
        CAPTURE(experts);
        random_stream random(experts, 0);
        std::vector<double> frequency(experts);
        double sum = 0;
        for (double &value : frequency) sum += value = random.unit() + 0.1;
        const auto routing = drawn_routing::from_frequency(1, experts, top_k, frequency, 1);
        REQUIRE(routing.ok());
        for (double &value : frequency) value = experts == top_k ? 1 : value * top_k / sum;
        if (experts > top_k) CHECK(*std::ranges::max_element(frequency) < 1);  // nothing is cut
        check_frequency(counted(*routing, 0), frequency);
    }
}

TEST_CASE("which experts meet changes from token to token") {
    const std::vector<double> frequency(16, 0.25);
    const auto routing = drawn_routing::from_frequency(1, 16, 4, frequency, 1);
    REQUIRE(routing.ok());
    std::set<std::pair<uint32_t, uint32_t>> pairs;
    uint32_t chosen[4];
    for (uint64_t token = 0; token < 2000; ++token) {
        routing->draw(1, token, 0, chosen);
        for (int a = 0; a < 4; ++a)
            for (int b = 0; b < 4; ++b)
                if (chosen[a] < chosen[b]) pairs.emplace(chosen[a], chosen[b]);
    }
    CHECK(pairs.size() > 16 * 15 / 2 * 8 / 10);
}

TEST_CASE("a draw is a function of seed, token and layer") {
    const std::vector<double> frequency(2 * 32, 0.125);
    const auto routing = drawn_routing::from_frequency(2, 32, 4, frequency, 1);
    REQUIRE(routing.ok());
    uint32_t differ[3] = {};
    for (uint64_t token = 0; token < 200; ++token) {
        std::vector<uint32_t> first(4), same(4), different(4);
        routing->draw(1, token, 0, first.data());
        routing->draw(1, token, 0, same.data());
        CHECK(first == same);
        routing->draw(2, token, 0, different.data()), differ[0] += first != different;
        routing->draw(1, token + 1, 0, different.data()), differ[1] += first != different;
        routing->draw(1, token, 1, different.data()), differ[2] += first != different;
    }
    for (const uint32_t count : differ) CHECK(count > 180);
}

namespace {

// Two models of 2 layers, 4 and 3 experts; home 1 asks for both, by groups.
demand_arrays grouped() {
    demand_arrays demand;
    demand.models = 2, demand.homes = 2;
    demand.model_first = {0, 8, 14};
    demand.model_layers = {2, 2};
    demand.model_experts = {4, 3};
    demand.model_top_k = {2, 1};
    demand.frequency.assign(28, 0);
    for (const uint32_t expert : {9u, 12u}) demand.frequency[expert] = 1;
    demand.group_first = {0, 2, 4, 6, 7, 8, 9};
    demand.group_experts = {0, 1, 2, 3, 4, 7, 8, 11, 13};
    demand.home_first_call = {0, 0, 6};
    demand.call_group = {0, 1, 2, 3, 4, 5};
    demand.call_share = {0.15, 0.45, 0.6, 0.4, 0.1, 0.3};
    return demand;
}

}  // namespace

TEST_CASE("groups are drawn whole, by their shares") {
    const demand_arrays demand = grouped();
    const auto pairs = drawn_routing::from_demand(demand, 1, 0, 0);
    REQUIRE(pairs.ok());
    check_frequency(counted(*pairs, 0), {0.25, 0.25, 0.75, 0.75});
    check_frequency(counted(*pairs, 1), {1, 0, 0, 1});
    uint32_t chosen[2];
    for (uint64_t token = 0; token < 100; ++token) {
        pairs->draw(7, token, 0, chosen);
        CHECK(chosen[1] == chosen[0] + 1);
        CHECK(chosen[0] % 2 == 0);
    }
    const auto singles = drawn_routing::from_demand(demand, 1, 1, 0);
    REQUIRE(singles.ok());
    check_frequency(counted(*singles, 0), {1, 0, 0});
    check_frequency(counted(*singles, 1), {0.25, 0, 0.75});
}

TEST_CASE("frequencies of a demand are used where it has no groups") {
    demand_arrays demand = grouped();
    demand.call_group.clear();
    const auto routing = drawn_routing::from_demand(demand, 0, 1, 0);
    REQUIRE(routing.ok());
    check_frequency(counted(*routing, 0), {0, 1, 0});
    check_frequency(counted(*routing, 1), {0, 1, 0});
}

TEST_CASE("what cannot be drawn is told") {
    const auto text = [](const result<drawn_routing> &routing) {
        return routing.ok() ? std::string() : routing.failure().text;
    };
    demand_arrays demand = grouped();
    CHECK(text(drawn_routing::from_demand(demand, 0, 1, 0)).find("layer 0 has no group") !=
          std::string::npos);
    demand.model_top_k[0] = 1;
    CHECK(text(drawn_routing::from_demand(demand, 1, 0, 0)).find("2 experts") != std::string::npos);
    const std::vector<double> wrong = {0.5, -1, 0.5, NAN};
    CHECK(text(drawn_routing::from_frequency(2, 2, 1, wrong, 0)).find("layer 0, expert 1") !=
          std::string::npos);
    CHECK(text(drawn_routing::from_frequency(1, 2, 3, wrong, 0)).find("top 3") !=
          std::string::npos);
    CHECK(text(drawn_routing::from_frequency(1, 4, 0, wrong, 0)).find("top 0") !=
          std::string::npos);
}

}  // namespace drawn_routing_test

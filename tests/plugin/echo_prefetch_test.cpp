// Goal: echo as a prefetch policy predicts a repeated routing, at any distance and for each stream.
// It orders only likely and absent experts, and learns the value of a gate's prediction. Method:
// feed one instance with planted repetitions through the C ABI. Compare its lists and orders with
// the known routing.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "order_bytes.h"
#include "policy_host.h"

namespace echo_prefetch_test {

using namespace moorage::test;

namespace {

const std::map<std::string, std::string> without_gate = {{"gate", "0"}};
constexpr uint32_t layers = 4, experts = 12, top_k = 2, period = 30;

// The experts of token `token` at `layer`: random, and again after `period` tokens.
std::vector<uint32_t> routed(uint32_t song, uint32_t token, uint32_t layer) {
    std::mt19937_64 generator(1 + song * 100'000ull + token % period * 100 + layer);
    const auto first = static_cast<uint32_t>(generator() % experts);
    const auto second = static_cast<uint32_t>((first + 1 + generator() % (experts - 1)) % experts);
    return {first, second};
}

struct driver {
    explicit driver(const std::map<std::string, std::string> &params = {})
        : host("cache/echo", {layers, experts, top_k, 12, true, 1}, params) {}

    // A token of each stream, stream s at its own song; up to and with layer `last`.
    void token(uint32_t index, const std::vector<uint32_t> &streams, uint32_t last = layers - 1,
               const std::function<void(uint32_t)> &after_layer = {}) {
        requests.assign(streams.begin(), streams.end());
        for (uint32_t layer = 0; layer <= last; ++layer) {
            chosen.clear();
            for (const uint32_t stream : streams)
                for (const uint32_t expert : routed(song + stream, index, layer))
                    chosen.push_back(expert);
            distinct.clear();
            for (const uint32_t expert : chosen)
                if (std::find(distinct.begin(), distinct.end(), expert) == distinct.end())
                    distinct.push_back(expert);
            step = {};
            step.size = sizeof(step);
            step.visit = step.index = uint64_t{index} * layers + layer;
            step.token = index;
            step.layer = layer;
            step.phase = MOORAGE_DECODE;
            step.token_count = static_cast<uint32_t>(streams.size());
            step.top_k = top_k;
            step.experts = experts;
            step.distinct_count = static_cast<uint32_t>(distinct.size());
            step.host_streams = streams.data();
            step.host_requests = requests.data();
            step.host_chosen = chosen.data();
            step.host_distinct = distinct.data();
            host.observer->observe(host.plugin, &step);
            if (after_layer) after_layer(layer);
        }
    }
    std::vector<uint32_t> predicted(uint32_t distance) {
        std::vector<uint32_t> list(experts);
        scores.assign(experts, 0);
        list.resize(host.prefetch->predict(host.plugin, &step, (step.layer + distance) % layers,
                                           distance, experts, list.data(), scores.data()));
        return list;
    }
    std::vector<uint32_t> ordered(const std::vector<uint32_t> &gate) {
        const uint32_t layer = (step.layer + 1) % layers;
        const uint32_t offsets[] = {0, static_cast<uint32_t>(gate.size())};
        moorage_forecast forecast{};
        forecast.size = sizeof(forecast);
        forecast.target_count = 1;
        forecast.buffer_free = experts;
        forecast.host_layers = &layer;
        forecast.host_offsets = offsets;
        forecast.host_experts = gate.data();
        std::vector<uint32_t> pages(experts);
        std::vector<uint8_t> segments(experts, MOORAGE_WHOLE);
        moorage_orders orders{
            sizeof(orders), 0, experts, 0, pages.data(), segments.data(), order_bytes(),
            order_bytes()};
        pages.resize(host.prefetch->plan(host.plugin, &step, &forecast, &orders));
        return pages;
    }

    policy_host host;
    uint32_t song = 0;  // of stream 0
    moorage_step step{};
    std::vector<uint64_t> requests;
    std::vector<uint32_t> chosen, distinct;
    std::vector<float> scores;
};

std::vector<uint32_t> sorted(std::vector<uint32_t> list) {
    std::sort(list.begin(), list.end());
    return list;
}

}  // namespace

TEST_CASE("what came before is foreseen at any distance") {
    driver fixture(without_gate);
    for (uint32_t index = 0; index < 3 * period; ++index) fixture.token(index, {0});
    fixture.token(3 * period, {0}, 1);
    for (uint32_t distance = 1; distance <= 3 * layers; ++distance) {
        auto list = fixture.predicted(distance);
        CAPTURE(distance);
        REQUIRE(list.size() >= top_k);
        CHECK(fixture.scores[0] > 0.5f);
        CHECK(fixture.scores[1] > 0.5f);
        CHECK(fixture.scores[2] < 0.5f);
        CHECK(std::is_sorted(fixture.scores.rbegin() + (experts - list.size()),
                             fixture.scores.rend()));
        list.resize(top_k);
        const uint32_t layers_ahead = 1 + distance;
        CHECK(sorted(list) ==
              sorted(routed(0, 3 * period + layers_ahead / layers, layers_ahead % layers)));
    }
}

TEST_CASE("streams of a batch are foreseen each by itself") {
    driver fixture(without_gate);
    for (uint32_t index = 0; index < 3 * period; ++index) fixture.token(index, {3, 5});
    fixture.token(3 * period, {3, 5}, 0);
    std::vector<uint32_t> expected = routed(3, 3 * period, 1);
    for (const uint32_t expert : routed(5, 3 * period, 1)) expected.push_back(expert);
    expected = sorted(expected);
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    auto list = fixture.predicted(1);
    list.resize(expected.size());
    CHECK(sorted(list) == expected);
    CHECK(fixture.scores[expected.size() - 1] > 0.5f);
    CHECK(fixture.scores[expected.size()] < 0.5f);
}

TEST_CASE("orders are likely and absent") {
    driver fixture;
    for (uint32_t index = 0; index < 3 * period; ++index) fixture.token(index, {0});
    fixture.token(3 * period, {0}, 1);
    CHECK(fixture.predicted(1).empty());  // left to the gate
    std::vector<uint32_t> expected;
    for (const uint32_t expert : routed(0, 3 * period, 2)) expected.push_back(2 * experts + expert);
    CHECK(sorted(fixture.ordered({})) == sorted(expected));
    fixture.host.state[expected[0]] = MOORAGE_WHOLE;
    CHECK(fixture.ordered({}) == std::vector<uint32_t>{expected[1]});
    fixture.host.state[expected[1]] = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    CHECK(fixture.ordered({}).empty());
    CHECK(fixture.host.prefetch->horizon(fixture.host.plugin) == 1);
}

TEST_CASE("a gate that is always right is believed, one that is always wrong is not") {
    // The routing never repeats, so that history knows nothing; the gate names the next layer's
    // experts, or two others.
    for (const bool right : {true, false}) {
        driver fixture;
        uint32_t good = 0, ordered = 0, steps = 0;
        for (uint32_t index = 0; index < 400; ++index) {
            fixture.song = index;
            fixture.token(index, {0}, layers - 1, [&](uint32_t layer) {
                if (layer + 1 == layers) return;
                auto next = routed(index, index, layer + 1);
                std::vector<uint32_t> gate = next;
                if (!right)
                    for (uint32_t &expert : gate) do
                            expert = (expert + 1) % experts;
                        while (std::find(next.begin(), next.end(), expert) != next.end());
                const auto pages = fixture.ordered(gate);
                if (index < 300) return;
                ++steps;
                ordered += static_cast<uint32_t>(pages.size());
                for (const uint32_t page : pages)
                    good += std::find(next.begin(), next.end(), page % experts) != next.end();
            });
        }
        CAPTURE(right);
        if (right)
            CHECK(good == top_k * steps);
        else
            CHECK(ordered < steps / 10);
    }
}

}  // namespace echo_prefetch_test

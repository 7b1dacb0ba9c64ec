// Goal: moe_infinity matches, predicts, evicts and replaces by its description. Method: a naive
// model keeps every matrix as plain counts and computes every cosine from scratch. Both see random
// steps of several interleaved streams. Every prediction, order of prefetches and victim must
// agree. A case by hand.
#include <doctest/doctest.h>

#include <cmath>

#include "any_policy.h"
#include "order_bytes.h"

namespace cache_moe_infinity_test {

using namespace moorage::test;

namespace {

using matrix = std::vector<std::vector<uint64_t>>;  // [layers][experts]

struct description {
    uint32_t layers, experts, k, capacity, ahead;
    bool by_visits;
    struct running {
        bool started = false;
        uint64_t request = 0;
        matrix counts;
    };
    std::vector<running> streams;
    std::vector<matrix> kept_counts;
    std::vector<uint64_t> last_used;
    uint64_t clock = 0;

    matrix empty() const { return matrix(layers, std::vector<uint64_t>(experts)); }

    static double cosine(const std::vector<uint64_t> &a, const std::vector<uint64_t> &b) {
        double dot = 0, left_length = 0, right_length = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            dot += static_cast<double>(a[i] * b[i]);
            left_length += static_cast<double>(a[i] * a[i]);
            right_length += static_cast<double>(b[i] * b[i]);
        }
        return left_length == 0 || right_length == 0
                   ? 0
                   : dot / (std::sqrt(left_length) * std::sqrt(right_length));
    }
    // Index of the kept matrix that is nearest; kept_counts.size() without any.
    size_t nearest(const matrix &target) const {
        size_t best = kept_counts.size();
        double most = -1;
        for (size_t i = 0; i < kept_counts.size(); ++i) {
            double sum = 0;
            for (uint32_t layer = 0; layer < layers; ++layer)
                sum += cosine(target[layer], kept_counts[i][layer]);
            if (sum > most) most = sum, best = i;
        }
        return best;
    }
    void observe(const step_data &data) {
        const moorage_step &step = data.step;
        for (uint32_t token = 0; token < step.token_count; ++token) {
            running &stream = streams[data.streams[token]];
            if (!stream.started || stream.request != data.requests[token]) {
                if (stream.started && kept_counts.size() < capacity)
                    kept_counts.push_back(stream.counts);
                else if (stream.started)
                    kept_counts[nearest(stream.counts)] = stream.counts;
                stream = {true, data.requests[token], empty()};
            }
            for (uint32_t i = 0; i < step.top_k; ++i)
                ++stream.counts[step.layer][data.chosen[token * step.top_k + i]];
        }
        for (const uint32_t expert : data.distinct)
            last_used[size_t{step.layer} * experts + expert] = ++clock;
    }
    // The best k experts of a layer by probability, with it.
    std::vector<std::pair<double, uint32_t>> predict(const step_data &data, uint32_t layer) const {
        std::vector<std::pair<double, uint32_t>> ranked;
        for (uint32_t expert = 0; expert < experts; ++expert) {
            double chance = 0;
            for (const uint32_t stream : data.streams) {
                const size_t match = nearest(streams[stream].counts);
                if (match == kept_counts.size()) continue;
                const auto &row = kept_counts[match][layer];
                uint64_t sum = 0;
                for (const uint64_t visits_of_expert : row) sum += visits_of_expert;
                if (sum > 0)
                    chance = std::max(chance,
                                      static_cast<double>(row[expert]) / static_cast<double>(sum));
            }
            if (chance > 0) ranked.emplace_back(chance, expert);
        }
        std::stable_sort(ranked.begin(), ranked.end(),
                         [](const auto &a, const auto &b) { return a.first > b.first; });
        ranked.resize(std::min<size_t>(ranked.size(), k));
        return ranked;
    }
    std::vector<uint32_t> plan(const step_data &data, const std::vector<uint32_t> &state,
                               uint32_t room) const {
        struct wish {
            double priority;
            uint32_t distance, expert, page;
        };
        std::vector<wish> wishes;
        for (uint32_t distance = 1; distance <= ahead; ++distance) {
            const uint32_t layer = (data.step.layer + distance) % layers;
            for (const auto &[chance, expert] : predict(data, layer))
                wishes.push_back({chance * (1 - static_cast<double>(distance) / (layers + 1)),
                                  distance, expert, layer * experts + expert});
        }
        std::sort(wishes.begin(), wishes.end(), [](const wish &a, const wish &b) {
            if (a.priority != b.priority) return a.priority > b.priority;
            return std::pair(a.distance, a.expert) < std::pair(b.distance, b.expert);
        });
        std::vector<uint32_t> pages;
        for (const wish &candidate : wishes)
            if (pages.size() < room && state[candidate.page] == 0) pages.push_back(candidate.page);
        return pages;
    }
    std::vector<uint32_t> victims(std::vector<uint32_t> candidates, uint32_t count) const {
        const auto priority = [&](uint32_t page) {
            uint64_t visits = 0, total = 0;
            const uint32_t layer = page / experts;
            for (const running &stream : streams) {
                if (!stream.started) continue;
                visits += stream.counts[layer][page % experts];
                for (const uint64_t visits_of_expert : stream.counts[layer])
                    total += visits_of_expert;
            }
            if (by_visits) return static_cast<double>(visits);
            const double share =
                total ? static_cast<double>(visits) / static_cast<double>(total) : 0.0;
            return (share + 1e-8) * (1 - static_cast<double>(layer) / layers);
        };
        std::stable_sort(candidates.begin(), candidates.end(), [&](uint32_t a, uint32_t b) {
            if (priority(a) != priority(b)) return priority(a) < priority(b);
            return last_used[a] < last_used[b];
        });
        candidates.resize(std::min<size_t>(count, candidates.size()));
        return candidates;
    }
};

// Does the host's part after a step: predictions of each coming layer, then the plan.
using predictions = std::vector<std::vector<std::pair<double, uint32_t>>>;
std::vector<uint32_t> ask_plan(any_policy &policy, const step_data &data, uint32_t layers,
                               uint32_t ahead, uint32_t room, predictions &predicted) {
    const moorage_step &step = data.step;
    std::vector<uint32_t> targets, offsets{0}, experts, best_experts(step.experts);
    std::vector<float> scores, best_scores(step.experts);
    for (uint32_t distance = 1; distance <= ahead; ++distance) {
        targets.push_back((step.layer + distance) % layers);
        const uint32_t count =
            policy.prefetch->predict(policy.plugin, &step, targets.back(), distance, step.experts,
                                     best_experts.data(), best_scores.data());
        predicted.emplace_back();
        for (uint32_t i = 0; i < count; ++i)
            predicted.back().emplace_back(double{best_scores[i]}, best_experts[i]);
        experts.insert(experts.end(), best_experts.begin(), best_experts.begin() + count);
        scores.insert(scores.end(), best_scores.begin(), best_scores.begin() + count);
        offsets.push_back(static_cast<uint32_t>(experts.size()));
    }
    moorage_forecast forecast{};
    forecast.size = sizeof(forecast);
    forecast.target_count = ahead;
    forecast.buffer_free = room;
    forecast.host_layers = targets.data();
    forecast.host_offsets = offsets.data();
    forecast.host_experts = experts.data();
    forecast.host_scores = scores.data();
    std::vector<uint32_t> pages(size_t{ahead} * step.experts);
    std::vector<uint8_t> segments(pages.size(), MOORAGE_WHOLE);
    moorage_orders orders{sizeof(orders),
                          0,
                          static_cast<uint32_t>(pages.size()),
                          0,
                          pages.data(),
                          segments.data(),
                          order_bytes(),
                          order_bytes()};
    pages.resize(policy.prefetch->plan(policy.plugin, &step, &forecast, &orders));
    return pages;
}

// A step of a subset of the streams, now and then several tokens of one.
void fill_some(step_data &data, const world &test_world, uint64_t index,
               const std::vector<uint64_t> &requests, uint32_t k, std::mt19937_64 &generator) {
    const uint32_t layers = test_world.limits.layers, experts = test_world.limits.experts;
    std::vector<std::vector<uint32_t>> chosen;
    std::vector<uint32_t> of_stream;
    for (uint32_t stream = 0; stream < requests.size(); ++stream)
        for (uint64_t token = generator() % 3; token > 0; --token) {
            chosen.push_back(draw_distinct(generator, k, experts));
            of_stream.push_back(stream);
        }
    if (chosen.empty()) {
        chosen.push_back(draw_distinct(generator, k, experts));
        of_stream.push_back(0);
    }
    fill_step(data, test_world, index, static_cast<uint32_t>(index % layers), chosen);
    for (size_t i = 0; i < of_stream.size(); ++i) {
        data.streams[i] = of_stream[i];
        data.requests[i] = requests[of_stream[i]];
    }
}

void compare(uint64_t seed) {
    std::mt19937_64 generator(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(4), experts = 3 + below(6), k = 1 + below(3);
    const uint32_t streams = 1 + below(3), capacity = 1 + below(4);
    const uint32_t ahead = 1 + below(layers);
    const bool by_visits = below(2) == 0, shared = below(3) != 0;
    CAPTURE(seed);
    world test_world(layers, experts, k, shared, layers * 2);
    test_world.limits.tokens_max = test_world.limits.requests_max = streams;
    any_policy policy("cache/moe_infinity", test_world,
                      {{"matrices", std::to_string(capacity)},
                       {"layers", std::to_string(ahead)},
                       {"priority", by_visits ? "visits" : "activation"}});
    REQUIRE(policy.prefetch->horizon(policy.plugin) == ahead);
    description plain{layers, experts, k, capacity, ahead, by_visits, {}, {}, {}, 0};
    plain.streams.resize(streams);
    plain.last_used.resize(size_t{layers} * experts);
    std::vector<uint64_t> requests(streams);
    for (uint32_t i = 0; i < streams; ++i) requests[i] = i;
    uint64_t next_request = streams;
    step_data data;
    for (uint64_t index = 0; index < uint64_t{layers} * 60; ++index) {
        const auto layer = static_cast<uint32_t>(index % layers);
        if (layer == 0)
            for (uint64_t &request : requests)
                if (below(8) == 0) request = next_request++;
        fill_some(data, test_world, index, requests, k, generator);
        policy.observe(data.step);
        plain.observe(data);
        for (uint32_t &state : test_world.state) state = below(2) ? MOORAGE_WHOLE : 0;
        const uint32_t room = below(6);
        predictions predicted;
        const auto pages = ask_plan(policy, data, layers, ahead, room, predicted);
        REQUIRE(pages == plain.plan(data, test_world.state, room));
        for (uint32_t distance = 1; distance <= ahead; ++distance) {
            const auto expected = plain.predict(data, (layer + distance) % layers);
            const auto &actual = predicted[distance - 1];
            REQUIRE(actual.size() == expected.size());
            for (size_t i = 0; i < actual.size(); ++i) {
                REQUIRE(actual[i].second == expected[i].second);
                REQUIRE(actual[i].first == double{static_cast<float>(expected[i].first)});
            }
        }
        const uint32_t pool = shared ? 0 : below(layers), count = 1 + below(3);
        std::vector<uint32_t> candidates;
        for (uint32_t page = 0; page < test_world.state.size(); ++page)
            if (test_world.state[page] != 0 && (shared || page / experts == pool))
                candidates.push_back(page);
        REQUIRE(policy.victims(pool, shared ? 0 : pool, count) == plain.victims(candidates, count));
    }
}

}  // namespace

TEST_CASE("matches, predictions, prefetches and victims are those of the description") {
    for (uint64_t seed = 0; seed < 150; ++seed) compare(seed);
}

TEST_CASE("a request like an earlier one is told what that one did next") {
    // Two layers. Request 0 goes 0 then 1, request 1 goes 2 then 3; request 2 begins as the first.
    world test_world(2, 4, 1, true, 4);
    any_policy policy("cache/moe_infinity", test_world, {{"layers", "1"}});
    step_data data;
    uint64_t index = 0;
    const auto see = [&](uint64_t request, uint32_t layer, uint32_t expert) {
        fill_step(data, test_world, index++, layer, {{expert}});
        data.requests[0] = request;
        policy.observe(data.step);
    };
    predictions predicted;
    see(0, 0, 0);
    CHECK(ask_plan(policy, data, 2, 1, 4, predicted).empty());  // nothing is known yet
    see(0, 1, 1), see(1, 0, 2), see(1, 1, 3);
    see(2, 0, 0);
    CHECK(ask_plan(policy, data, 2, 1, 4, predicted) == std::vector<uint32_t>{4 + 1});
    see(3, 0, 2);
    CHECK(ask_plan(policy, data, 2, 1, 4, predicted) == std::vector<uint32_t>{4 + 3});
}

}  // namespace cache_moe_infinity_test

// synth_test.cpp - goal: synthetic traces follow their law and are the same everywhere. Method:
// published outputs of the generators; frequencies, reuse and accuracy compared with the exact
// probability within five standard deviations; known miss ratios of lru and fifo on the family of
// the benchmarks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <list>
#include <numeric>
#include <set>

#include "core/source/synth.h"
#include "core/source/trace_stats.h"
#include "core/source/zipf.h"

namespace synth_test {

using namespace moorage::core;

namespace {

trace_data make(const synth_options &options) {
    auto generated = synthesize(options);
    REQUIRE_MESSAGE(generated.ok(), generated.failure().text);
    return std::move(*generated);
}

// Chance `expected` seen `count` times in `total` draws, within five standard deviations.
void near(uint64_t count, uint64_t total, double expected) {
    const double n = static_cast<double>(total),
                 deviation = std::sqrt(n * expected * (1 - expected));
    CAPTURE(expected);
    CAPTURE(static_cast<double>(count) / n);
    CHECK(std::fabs(static_cast<double>(count) - n * expected) <= 5 * deviation + 1e-9);
}

// Misses per request of a cache that evicts the front of a list; hits move to the back for lru.
double miss_ratio(const trace_data &data, size_t slots, bool lru) {
    std::list<uint32_t> queue;
    std::vector<std::list<uint32_t>::iterator> place(data.layers * data.experts, queue.end());
    uint64_t misses = 0;
    for (size_t i = 0; i < data.chosen.size(); ++i) {
        const uint32_t layer = static_cast<uint32_t>(i / data.top_k % data.layers);
        const uint32_t page = layer * data.experts + data.chosen[i];
        if (place[page] != queue.end()) {
            if (lru) queue.splice(queue.end(), queue, place[page]);
            continue;
        }
        ++misses;
        if (queue.size() == slots) {
            place[queue.front()] = queue.end();
            queue.pop_front();
        }
        place[page] = queue.insert(queue.end(), page);
    }
    return static_cast<double>(misses) / static_cast<double>(data.chosen.size());
}

}  // namespace

TEST_CASE("the generators give their published outputs") {
    seed_stream seeds(0);
    CHECK(seeds.next() == 0xe220a8397b1dcdafu);
    CHECK(seeds.next() == 0x6e789e6aa1b965f4u);
    CHECK(seeds.next() == 0x06c45d188009454fu);
    random_stream random(std::array<uint64_t, 4>{1, 2, 3, 4});
    CHECK(random.next() == 11520);
    CHECK(random.next() == 0);
    CHECK(random.next() == 1509978240);
    CHECK(random.next() == 1215971899390074240u);
}

TEST_CASE("ranks are drawn with weight 1 / (rank + b)^a") {
    struct law {
        uint32_t count;
        double a, b;
    };
    for (const law &ranks_law :
         {law{8, 1, 0}, law{60, 1.2, 2.7}, law{5, 0, 0}, law{16, 0.5, -0.5}, law{1, 3, 0}}) {
        const zipf ranks(ranks_law.count, ranks_law.a, ranks_law.b);
        std::vector<double> weight(ranks_law.count);
        for (uint32_t r = 0; r < ranks_law.count; ++r)
            weight[r] = std::pow(r + 1 + ranks_law.b, -ranks_law.a);
        const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
        std::vector<uint64_t> seen(ranks_law.count);
        random_stream random(3, ranks_law.count);
        for (int i = 0; i < 200'000; ++i) ++seen[ranks.draw(random)];
        for (uint32_t r = 0; r < ranks_law.count; ++r) {
            CHECK(ranks.share(r) == doctest::Approx(weight[r] / total).epsilon(1e-9));
            near(seen[r], 200'000, weight[r] / total);
        }
    }
}

TEST_CASE("a free rank is drawn by weight also when the heavy ones are taken") {
    const zipf ranks(10, 4, 0);
    std::vector<uint8_t> taken(10, 0);
    taken[0] = taken[1] = taken[2] = 1;  // together above 99 %
    double total = 0;
    for (int r = 3; r < 10; ++r) total += std::pow(r + 1, -4);
    std::vector<uint64_t> seen(10);
    random_stream random(1, 1);
    for (int i = 0; i < 200'000; ++i) ++seen[ranks.draw_free(random, taken)];
    for (int r = 0; r < 10; ++r) near(seen[r], 200'000, r < 3 ? 0 : std::pow(r + 1, -4) / total);
}

TEST_CASE("two experts a token are drawn without replacement") {
    const trace_data data =
        make({.layers = 1, .experts = 5, .top_k = 2, .tokens = 200'000, .seed = 4});
    std::vector<uint64_t> first_count(5), chosen_count(5);
    for (size_t i = 0; i < data.chosen.size(); i += 2) {
        CHECK(data.chosen[i] != data.chosen[i + 1]);
        ++first_count[data.chosen[i]], ++chosen_count[data.chosen[i]],
            ++chosen_count[data.chosen[i + 1]];
    }
    std::vector<double> weight = {1, 1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5};
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    std::vector<uint32_t> by_count = {0, 1, 2, 3, 4};
    std::ranges::sort(by_count, std::ranges::greater(),
                      [&](uint32_t e) { return chosen_count[e]; });
    for (uint32_t r = 0; r < 5; ++r) {
        double second = 0;
        for (uint32_t other_rank = 0; other_rank < 5; ++other_rank)
            if (other_rank != r)
                second += weight[other_rank] / total * weight[r] / (total - weight[other_rank]);
        near(first_count[by_count[r]], data.tokens, weight[r] / total);
        near(chosen_count[by_count[r]], data.tokens, weight[r] / total + second);
    }
}

TEST_CASE("the family of the benchmarks has the known miss ratios, whatever the seed") {
    for (const uint64_t seed : {1u, 2u}) {
        const trace_data data = make({.tokens = 30'000, .seed = seed});
        const double lru[] = {.707, .434, .141}, fifo[] = {.750, .467, .185};
        const size_t slots[] = {64, 128, 200};
        for (int i = 0; i < 3; ++i) {
            CHECK(std::fabs(miss_ratio(data, slots[i], true) - lru[i]) < .003);
            CHECK(std::fabs(miss_ratio(data, slots[i], false) - fifo[i]) < .003);
        }
    }
}

TEST_CASE(
    "equal options give equal traces, other seeds others, and further tensors change nothing") {
    const synth_options plain{.layers = 3,
                              .tokens = 500,
                              .requests = 3,
                              .reuse = .3,
                              .domains = 2,
                              .drift = .1,
                              .seed = 9};
    synth_options recorded = plain, reseeded = plain;
    recorded.gate_scores = true;
    recorded.predictions = 4;
    recorded.prediction_accuracy = .5;
    reseeded.seed = 10;
    CHECK(make(plain).chosen == make(plain).chosen);
    CHECK(make(plain).chosen == make(recorded).chosen);
    CHECK(make(plain).chosen != make(reseeded).chosen);
}

TEST_CASE("reuse keeps experts of the previous token of the request") {
    // One expert a token, all alike: it stays by reuse, or is drawn again by chance.
    const trace_data data =
        make({.layers = 1, .experts = 4, .top_k = 1, .tokens = 100'000, .a = 0, .reuse = .6});
    uint64_t same = 0;
    for (size_t i = 1; i < data.chosen.size(); ++i) same += data.chosen[i] == data.chosen[i - 1];
    near(same, data.tokens - 1, .6 + .4 / 4);

    const trace_data stuck =
        make({.layers = 2, .experts = 16, .top_k = 3, .tokens = 100, .requests = 10, .reuse = 1});
    std::set<std::vector<uint16_t>> sets;
    for (uint64_t token = 0; token < 100; ++token) {
        const uint16_t *now = stuck.chosen.data() + token * 6;
        if (token % 10 != 0)
            CHECK(std::equal(now, now + 6, now - 6));
        else
            sets.insert({now, now + 6});
    }
    CHECK(sets.size() > 1);  // every request begins anew
}

TEST_CASE("domains have rankings of their own, which drift only if asked to") {
    const auto favourite = [](const trace_data &data, uint64_t first, uint64_t last) {
        std::vector<uint64_t> seen(data.experts);
        for (uint64_t token = first; token < last; ++token)
            ++seen[data.chosen[token * data.layers * data.top_k]];
        return std::ranges::max_element(seen) - seen.begin();
    };
    synth_options options{.layers = 1,
                          .experts = 64,
                          .top_k = 1,
                          .tokens = 40'000,
                          .requests = 4,
                          .a = 1.5,
                          .domains = 2};
    const trace_data constant = make(options);
    CHECK(constant.request_domain == std::vector<int32_t>{0, 1, 0, 1});
    CHECK(favourite(constant, 0, 10'000) == favourite(constant, 20'000, 30'000));
    CHECK(favourite(constant, 0, 10'000) != favourite(constant, 10'000, 20'000));
    options.drift = 1;  // 20,000 swaps among 63 pairs: nothing stays at the top
    const trace_data moving = make(options);
    CHECK(favourite(moving, 0, 200) != favourite(moving, 29'800, 30'000));
    CHECK(std::ranges::max(moving.chosen) == 63);
}

TEST_CASE("gate scores have the chosen experts as their largest, in order") {
    for (const uint32_t top_k : {1u, 3u, 12u}) {
        const trace_data data = make({.layers = 2,
                                      .experts = 12,
                                      .top_k = top_k,
                                      .tokens = 300,
                                      .a = 2,
                                      .reuse = .5,
                                      .gate_scores = true});
        for (uint64_t row = 0; row < 600; ++row) {
            const float *scores = data.gate_scores.values.data() + row * 12;
            const uint16_t *chosen = data.chosen.data() + row * top_k;
            std::vector<bool> is_chosen(12);
            for (uint32_t k = 0; k < top_k; ++k) {
                is_chosen[chosen[k]] = true;
                if (k > 0) CHECK(scores[chosen[k]] < scores[chosen[k - 1]]);
            }
            for (uint32_t e = 0; e < 12; ++e) {
                CHECK(scores[e] >= 0);
                if (!is_chosen[e]) CHECK(scores[e] < scores[chosen[top_k - 1]]);
            }
            CHECK(std::accumulate(scores, scores + 12, 0.0) == doctest::Approx(1).epsilon(.01));
        }
    }
}

TEST_CASE("predictions hold the wished share of the chosen experts, and no expert twice") {
    for (const double accuracy : {0.0, 0.7, 1.0})
        for (const uint32_t width : {3u, 8u, 20u}) {
            const trace_data data = make({.layers = 4,
                                          .experts = 20,
                                          .top_k = 3,
                                          .tokens = 3000,
                                          .predictions = width,
                                          .prediction_accuracy = accuracy});
            uint64_t right = 0;
            for (uint64_t row = 0; row < 12'000; ++row) {
                const uint16_t *list = data.predicted.data() + row * width;
                const uint16_t *chosen = data.chosen.data() + row * 3;
                CHECK(std::set<uint16_t>(list, list + width).size() == width);
                for (int k = 0; k < 3; ++k) right += std::count(list, list + 3, chosen[k]);
            }
            near(right, 36'000, accuracy);
        }
    // If all experts are chosen, no prediction can be wrong.
    const trace_data all_chosen = make({.layers = 1,
                                        .experts = 2,
                                        .top_k = 2,
                                        .tokens = 10,
                                        .predictions = 2,
                                        .prediction_accuracy = 0});
    CHECK(all_chosen.predicted == all_chosen.chosen);
}

TEST_CASE("a synthetic file opens with everything in it, and its statistics are as made") {
    const auto path = std::filesystem::temp_directory_path() / "moorage-synth-test.safetensors";
    const synth_options options{.layers = 3,
                                .experts = 300,
                                .top_k = 2,
                                .tokens = 900,
                                .requests = 7,
                                .domains = 3,
                                .gate_scores = true,
                                .predictions = 5,
                                .prediction_accuracy = 1,
                                .seed = 5};
    const status written = write_synthetic(options, path);
    REQUIRE_MESSAGE(written.ok(), written.failure().text);
    const auto opened = trace::open(path);
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    const trace_data data = make(options);
    CHECK(opened->tokens() == 900);
    CHECK(opened->experts() == 300);
    CHECK(opened->requests() == 7);
    CHECK(opened->domains().size() == 3);
    for (uint64_t i = 0; i < data.chosen.size(); ++i)
        CHECK(opened->expert(i / 6, i / 2 % 3, i % 2) == data.chosen[i]);
    float row[300];
    opened->gate_scores(899, 2, row);
    CHECK(std::equal(row, row + 300, data.gate_scores.values.end() - 300));
    const trace_statistics found = measure(*opened);
    CHECK(found.length_min == 128);
    CHECK(found.length_median == 129);
    CHECK(found.length_max == 129);
    CHECK(found.top_count == 75);
    CHECK(mean_from(found.accuracy, 0) == 1);
    std::filesystem::remove(path);
}

TEST_CASE("options outside their limits are named") {
    const auto refused = [](const synth_options &options, const std::string &part) {
        const status checked = check_options(options);
        REQUIRE_FALSE(checked.ok());
        CHECK(checked.failure().usage);
        CHECK_MESSAGE(checked.failure().text.find(part) != std::string::npos,
                      checked.failure().text);
    };
    CHECK(check_options({}).ok());
    refused({.experts = 4, .top_k = 5}, "top-k is 5");
    refused({.layers = 0}, "layers is 0");
    refused({.experts = 70'000}, "experts is 70000");
    refused({.layers = 60'000, .experts = 60'000}, "layers times experts is 3600000000");
    refused({.tokens = 0}, "tokens is 0");
    refused({.tokens = 5, .requests = 6}, "requests is 6");
    refused({.a = -1}, "a is -1");
    refused({.b = -1}, "b is -1");
    refused({.b = NAN}, "b is nan");
    refused({.reuse = 1.01}, "reuse is 1.01");
    refused({.domains = 0}, "domains is 0");
    refused({.drift = -.1}, "drift is -0.1");
    refused({.predictions = 9}, "predictions is 9");
    refused({.prediction_accuracy = 2}, "prediction-accuracy is 2");
}

}  // namespace synth_test

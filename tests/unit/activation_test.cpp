// activation_test.cpp - goal: frequencies and sets chosen together are those of the trace, the file
// or the distribution that they come from. Method: a naive count of traces built here, the sum over
// all orders of drawing for sets, files with one mistake each.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "tools/placement/activation.h"
#include "tools/placement/arrivals.h"
#include "tests/unit/trace_file.h"

namespace activation_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

model_shape shape_of(uint32_t layers, uint32_t experts, uint32_t top_k) {
    model_shape shape;
    shape.name = "test";
    shape.moe_layers = shape.layers = layers;
    shape.experts = experts;
    shape.top_k = top_k;
    return shape;
}

using set_shares = std::map<std::vector<uint32_t>, double>;

set_shares layer_sets(const activation &popularity, uint32_t layer, uint32_t top_k) {
    set_shares sets;
    for (uint64_t n = popularity.layer_group[layer]; n < popularity.layer_group[layer + 1]; ++n) {
        const auto first = popularity.group_experts.begin() + static_cast<ptrdiff_t>(n * top_k);
        const std::vector<uint32_t> set(first, first + top_k);
        CHECK(std::is_sorted(set.begin(), set.end()));
        CHECK(std::adjacent_find(set.begin(), set.end()) == set.end());
        CHECK(sets.emplace(set, popularity.share[n]).second);
    }
    return sets;
}

// Frequencies are the sums over groups, a layer's shares sum to 1.
void check_sums(const activation &popularity, uint32_t layers, uint32_t experts, uint32_t top_k) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
        std::vector<double> sums(experts, 0.0);
        double share_sum = 0;
        for (const auto &[set, share] : layer_sets(popularity, layer, top_k)) {
            share_sum += share;
            for (const uint32_t expert : set) sums[expert] += share;
        }
        CHECK(share_sum == doctest::Approx(1).epsilon(1e-12));
        for (uint32_t n = 0; n < experts; ++n)
            CHECK(popularity.frequency[layer * experts + n] ==
                  doctest::Approx(sums[n]).epsilon(1e-12));
    }
}

// Probability that a token draws the set, over every order of drawing it.
double over_orders(const std::vector<double> &weights, std::vector<uint32_t> set) {
    double total = 0;
    std::sort(set.begin(), set.end());
    do {
        double left = 1, product = 1;
        for (const uint32_t expert : set) {
            product *= weights[expert] / left;
            left -= weights[expert];
        }
        total += product;
    } while (std::next_permutation(set.begin(), set.end()));
    return total;
}

// The popularity of a layer's experts, by the frequencies of a top-1 model with the same seed.
std::vector<uint32_t> ranks_of(const activation &single, uint32_t layer, uint32_t experts) {
    std::vector<uint32_t> order(experts), ranks(experts);
    std::iota(order.begin(), order.end(), 0u);
    const double *row = &single.frequency[layer * experts];
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return row[a] > row[b]; });
    for (uint32_t rank = 0; rank < experts; ++rank) ranks[order[rank]] = rank;
    return ranks;
}

// A trace of 5 layers, 7 experts, top-3 in requests of 4 tokens.
raw_file random_trace(uint64_t tokens) {
    random_stream random(5, 0);
    std::vector<uint8_t> chosen;
    for (uint64_t row = 0; row < tokens * 5; ++row) {
        std::vector<uint8_t> ids = {0, 1, 2, 3, 4, 5, 6};
        for (size_t n = 0; n < 3; ++n) {
            // The lower half of the rest, so that some sets are frequent.
            std::swap(ids[n], ids[n + random.below((ids.size() - n + 1) / 2)]);
            chosen.push_back(ids[n]);
        }
    }
    raw_file file = plain_file(tokens, 5, 3, 7, chosen);
    std::vector<int64_t> offsets;
    std::vector<int32_t> domains;
    for (uint64_t offset = 0; offset <= tokens; offset += 4)
        offsets.push_back(static_cast<int64_t>(offset));
    for (size_t n = 0; n + 1 < offsets.size(); ++n) domains.push_back(static_cast<int32_t>(n % 3));
    file.metadata["domains"] = "law,code,prose";
    file["request_offsets"] = {"request_offsets", "I64", "[" + std::to_string(offsets.size()) + "]",
                               raw(offsets)};
    file["request_domain"] = {"request_domain", "I32", "[" + std::to_string(domains.size()) + "]",
                              raw(domains)};
    return file;
}

raw_file good_frequencies() {
    raw_file file;
    file.metadata = {{"format", "moorage.frequency"},
                     {"layers", "2"},
                     {"experts", "4"},
                     {"top_k", "2"},
                     {"subjects", "law,art"}};
    file.tensors = {{"frequency", "F32", "[2,2,4]",
                     raw<float>({.5f, .25f, .125f, .125f, .25f, .25f, .25f, .25f,  //
                                 .25f, .25f, .25f, .25f, 0, 0, .5f, .5f})},
                    {"requests", "I32", "[2]", raw<int32_t>({300, 100})}};
    return file;
}

std::string refusal(const raw_file &file) {
    const auto read = frequency_file::from_bytes(file.build(), "f.safetensors");
    REQUIRE_FALSE(read.ok());
    return read.failure().text;
}

bool holds(const std::string &text, const std::string &part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE("\"" << text << "\" lacks \"" << part << "\"");
    return found;
}

}  // namespace

TEST_CASE("top-1 draws have the popularity of their rank, shuffled in every layer") {
    const activation drawn = draw_activation(shape_of(40, 8, 1), {1.25, 3, 0, 100});
    check_sums(drawn, 40, 8, 1);
    std::vector<double> expected;
    for (int rank = 1; rank <= 8; ++rank) expected.push_back(std::pow(rank, -1.25));
    const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
    std::vector<uint32_t> firsts;
    for (uint32_t layer = 0; layer < 40; ++layer) {
        std::vector<double> row(drawn.frequency.begin() + layer * 8,
                                drawn.frequency.begin() + layer * 8 + 8);
        firsts.push_back(
            static_cast<uint32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
        std::sort(row.rbegin(), row.rend());
        for (size_t rank = 0; rank < 8; ++rank)
            CHECK(row[rank] == doctest::Approx(expected[rank] / total).epsilon(1e-12));
    }
    // All eight experts come first somewhere in 40 layers.
    std::sort(firsts.begin(), firsts.end());
    CHECK(std::unique(firsts.begin(), firsts.end()) - firsts.begin() == 8);
}

TEST_CASE("sets of a top-K draw have the probability of all their orders") {
    struct size {
        uint32_t experts, top_k;
    };
    for (const size &shape : {size{4, 2}, size{6, 3}, size{7, 5}, size{9, 4}, size{3, 3}}) {
        const uint32_t experts = shape.experts, top_k = shape.top_k;
        CAPTURE(experts);
        CAPTURE(top_k);
        const double exponent = 0.9;
        const activation drawn =
            draw_activation(shape_of(3, experts, top_k), {exponent, 8, 2, 500});
        const activation single = draw_activation(shape_of(3, experts, 1), {exponent, 8, 2, 500});
        check_sums(drawn, 3, experts, top_k);
        std::vector<double> weights(experts);
        for (uint32_t rank = 0; rank < experts; ++rank)
            weights[rank] = std::pow(rank + 1, -exponent);
        const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double &weight : weights) weight /= total;
        for (uint32_t layer = 0; layer < 3; ++layer) {
            const std::vector<uint32_t> ranks = ranks_of(single, layer, experts);
            size_t sets = 1;
            for (uint32_t n = 0; n < top_k; ++n) sets = sets * (experts - n) / (n + 1);
            const set_shares shares = layer_sets(drawn, layer, top_k);
            CHECK(shares.size() == sets);
            for (const auto &[set, share] : shares) {
                std::vector<uint32_t> by_rank;
                for (const uint32_t expert : set) by_rank.push_back(ranks[expert]);
                CHECK(share == doctest::Approx(over_orders(weights, by_rank)).epsilon(1e-9));
            }
        }
    }
}

TEST_CASE("more sets than the limit are a sample of the same distribution") {
    const model_shape shape = shape_of(2, 16, 4);  // 1820 sets
    const activation exact = draw_activation(shape, {0.8, 1, 1, 4000});
    const activation sample = draw_activation(shape, {0.8, 1, 1, 1500});
    CHECK(exact.layer_group[1] == 1820);
    CHECK(sample.layer_group[1] <= 1500);
    check_sums(sample, 2, 16, 4);
    // Five deviations of the mean of 1500 tokens.
    for (size_t n = 0; n < 32; ++n) {
        const double p = exact.frequency[n];
        CHECK(std::fabs(sample.frequency[n] - p) < 5 * std::sqrt(p * (1 - p) / 1500));
    }
    // 75 million sets: as many groups as the sample has tokens at most.
    const activation large = draw_activation(shape_of(3, 64, 6), {0.8, 1, 1, 1 << 20});
    check_sums(large, 3, 64, 6);
    CHECK(large.layer_group[1] <= sample_tokens);
    // Without groups the frequencies stay.
    const activation bare = draw_activation(shape, {0.8, 1, 1, 0});
    CHECK_FALSE(bare.has_groups());
    CHECK(bare.share.empty());
    CHECK(bare.frequency == exact.frequency);
}

TEST_CASE("equal seeds and streams draw the same, others do not") {
    const model_shape shape = shape_of(12, 8, 1);
    const auto draw = [&](uint64_t seed, uint64_t stream) {
        return draw_activation(shape, {1, seed, stream, 10}).frequency;
    };
    CHECK(draw(1, 1) == draw(1, 1));
    CHECK(draw(1, 1) != draw(2, 1));
    CHECK(draw(1, 1) != draw(1, 2));
}

TEST_CASE("a trace's sets and frequencies are those of a naive count") {
    const auto opened = trace::from_bytes("t", random_trace(120).build());
    REQUIRE_MESSAGE(opened.ok(), (opened ? "" : opened.failure().text));
    cluster_workload workload;
    workload.name = "w";
    workload.domains = {"code", "law"};
    workload.request_first = 1;
    workload.request_step = 2;
    const auto requests = chosen_requests(*opened, workload);
    REQUIRE(requests.ok());
    // The odd ones of 30 requests, without every third (prose: 2, 5, 8, ...).
    std::vector<uint64_t> expected;
    for (uint64_t n = 1; n < 30; n += 2)
        if (n % 3 != 2) expected.push_back(n);
    CHECK(*requests == expected);

    const activation seen = trace_activation(*opened, *requests, 1000);
    check_sums(seen, 5, 7, 3);
    for (uint32_t layer = 0; layer < 5; ++layer) {
        set_shares naive;
        std::vector<double> frequency(7, 0.0);
        const double tokens = static_cast<double>(expected.size()) * 4;
        for (const uint64_t request : expected)
            for (uint64_t token = request * 4; token < request * 4 + 4; ++token) {
                std::vector<uint32_t> set;
                for (uint32_t rank = 0; rank < 3; ++rank) {
                    set.push_back(opened->expert(token, layer, rank));
                    frequency[set.back()] += 1 / tokens;
                }
                std::sort(set.begin(), set.end());
                naive[set] += 1 / tokens;
            }
        const set_shares sets = layer_sets(seen, layer, 3);
        CHECK(sets.size() == naive.size());
        for (const auto &[set, share] : naive) CHECK(sets.at(set) == doctest::Approx(share));
        for (uint32_t n = 0; n < 7; ++n)
            CHECK(seen.frequency[layer * 7 + n] == doctest::Approx(frequency[n]));
    }
    // Fewer groups: every third of 60 tokens, so shares are of 20.
    const activation few = trace_activation(*opened, *requests, 20);
    check_sums(few, 5, 7, 3);
    CHECK(few.layer_group[1] <= 20);
    CHECK(few.share[0] * 20 == doctest::Approx(std::round(few.share[0] * 20)));
    CHECK_FALSE(trace_activation(*opened, *requests, 0).has_groups());
    CHECK(trace_activation(*opened, *requests, 0).frequency == seen.frequency);

    workload.domains = {"cod"};
    CHECK(holds(chosen_requests(*opened, workload).failure().text, "did you mean code"));
    workload.domains.clear();
    workload.request_first = 30;
    CHECK(holds(chosen_requests(*opened, workload).failure().text, "no request"));
    CHECK(fits(*opened, shape_of(5, 7, 3)));
    CHECK_FALSE(fits(*opened, shape_of(5, 7, 2)));
}

TEST_CASE("a frequency file: subjects weighted by their requests, per token") {
    const auto file = frequency_file::from_bytes(good_frequencies().build(), "f");
    REQUIRE_MESSAGE(file.ok(), (file ? "" : file.failure().text));
    CHECK(file->fits(shape_of(2, 4, 2)));
    CHECK(file->subjects() == std::vector<std::string>{"law", "art"});
    // top_k activations a token: twice the share.
    CHECK(file->read({"law"})->frequency == std::vector<double>{1, .5, .25, .25, .5, .5, .5, .5});
    // Three parts law, one part art: (3 * .5 + .25) / 4 * 2 = .875 and so on.
    CHECK(file->read({})->frequency ==
          std::vector<double>{.875, .5, .3125, .3125, .375, .375, .625, .625});
    CHECK_FALSE(file->read({})->has_groups());
    CHECK(holds(file->read({"lew"}).failure().text, "did you mean law"));

    // A token that chooses one expert: sets of one.
    raw_file single = good_frequencies();
    single.metadata["top_k"] = "1";
    const auto ones = frequency_file::from_bytes(single.build(), "f")->read({"law"});
    check_sums(*ones, 2, 4, 1);
    CHECK(ones->frequency[1] == .25);

    raw_file wrong = good_frequencies();
    wrong.metadata["format"] = "moorage.trace";
    CHECK(holds(refusal(wrong), "no file of frequencies"));
    wrong = good_frequencies(), wrong.remove("frequency");
    CHECK(holds(refusal(wrong), "frequency [subjects, layers, experts]"));
    wrong = good_frequencies(), wrong.metadata["layers"] = "3";
    CHECK(holds(refusal(wrong), "does not fit its layers 3"));
    wrong = good_frequencies(), wrong.metadata["top_k"] = "5";
    CHECK(holds(refusal(wrong), "top_k 5"));
    wrong = good_frequencies(), wrong.metadata["subjects"] = "law";
    CHECK(holds(refusal(wrong), "2 subjects and names 1"));
    wrong = good_frequencies(), wrong["requests"].bytes = raw<int32_t>({1, -1});
    CHECK(holds(refusal(wrong), "requests of subject 1 is -1"));
    wrong = good_frequencies(), wrong["frequency"].bytes = raw(std::vector<float>(16, 0.2f));
    CHECK(holds(refusal(wrong), "subject 0 layer 0 sum to 0.8"));
    std::vector<float> heavy(16, 0.25f);
    heavy[4] = 0.75f, heavy[5] = 0;
    wrong = good_frequencies(), wrong["frequency"].bytes = raw(heavy);
    CHECK(holds(refusal(wrong), "frequency 4 is 0.75"));
}

TEST_CASE("arrivals come in order, with lengths") {
    const auto read = parse_arrivals("arrival_s,input,output\n0.5, 10,3\r\n\n2,0,1", "a.csv");
    REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
    REQUIRE(read->size() == 2);
    CHECK((*read)[0].at_s == 0.5);
    CHECK((*read)[0].input_tokens == 10);
    CHECK((*read)[1].output_tokens == 1);
    const auto error_of = [](const std::string &text) {
        const auto wrong = parse_arrivals(text, "a.csv");
        REQUIRE_FALSE(wrong.ok());
        return wrong.failure().text;
    };
    CHECK(holds(error_of("1,2,3\n1,2\n"), "a.csv:2: arrival_s,input,output"));
    CHECK(holds(error_of("1,2,3\nnan,2,1\n"), "a.csv:2"));
    CHECK(holds(error_of("2,1,1\n1,1,1\n"), "a.csv:2: a request comes at 1 s, after one at 2 s"));
    CHECK(holds(error_of("-1,1,1\n"), "comes at -1 s"));
    CHECK(holds(error_of("1,1,0\n"), "lengths 1 and 0"));
    CHECK(holds(error_of("1,1,999999999\n"), "lengths"));
    CHECK(holds(error_of("arrival_s,input,output\n"), "no request"));
}

TEST_CASE("lengths that are not given come from the trace's request") {
    const auto completed = [](uint32_t rows, uint32_t input, uint32_t output) {
        arrival request{0, input, output};
        complete_lengths(rows, request);
        return std::pair{request.input_tokens, request.output_tokens};
    };
    // A request of 10 rows: 9 rows of input give the first output, and one more row gives the
    // second.
    CHECK(completed(10, 0, 0) == std::pair{9u, 2u});
    CHECK(completed(10, 4, 0) == std::pair{4u, 7u});
    CHECK(completed(10, 0, 3) == std::pair{8u, 3u});
    CHECK(completed(10, 20, 0) == std::pair{20u, 1u});
    CHECK(completed(10, 0, 20) == std::pair{1u, 20u});
    CHECK(completed(10, 5, 6) == std::pair{5u, 6u});
    CHECK(completed(1, 0, 0) == std::pair{1u, 1u});
    CHECK(passes_of({0, 512, 1}) == 1);
    CHECK(passes_of({0, 513, 4}) == 5);
}

}  // namespace activation_test

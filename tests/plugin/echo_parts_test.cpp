// Goal: the parts of echo follow their description. Rates decay as worked by hand. A planted
// repetition gets the scores worked by hand. Streams of batches and interleaved requests are
// matched separately. The vector forms agree bit for bit. Method: use the headers of plugins/cache
// directly. For streams, a naive account of every pair of tokens keeps whole routings, over random
// batches.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "plugins/cache/route_history.hpp"

namespace echo_parts_test {

namespace {

using learning::route_history;
using sets = std::vector<std::vector<uint32_t>>;  // of the tokens of a step

moorage_limits limits_of(uint32_t layers, uint32_t experts, uint32_t top_k, uint32_t streams = 1) {
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = layers, limits.experts = experts, limits.top_k = top_k;
    limits.tokens_max = limits.requests_max = streams;
    limits.pools = 1;
    return limits;
}

// A layer step of tokens of the given streams, with the arrays it points to.
struct made_step {
    made_step(uint32_t layers, uint32_t experts, uint64_t visit,
              const std::vector<uint32_t> &token_streams, const sets &tokens)
        : streams(token_streams), requests(token_streams.size()) {
        for (const auto &token : tokens)
            for (const uint32_t expert : token) {
                chosen.push_back(expert);
                const auto found = std::find(distinct.begin(), distinct.end(), expert);
                if (found == distinct.end()) {
                    distinct.push_back(expert);
                    counts.push_back(1);
                } else {
                    ++counts[static_cast<size_t>(found - distinct.begin())];
                }
            }
        view.size = sizeof(moorage_step);
        view.index = view.visit = visit;
        view.layer = static_cast<uint32_t>(visit % layers);
        view.token_count = static_cast<uint32_t>(token_streams.size());
        view.top_k = static_cast<uint32_t>(tokens[0].size());
        view.experts = experts;
        view.distinct_count = static_cast<uint32_t>(distinct.size());
        view.host_streams = streams.data();
        view.host_requests = requests.data();
        view.host_chosen = chosen.data();
        view.host_distinct = distinct.data();
        view.host_distinct_tokens = counts.data();
    }
    made_step(const made_step &) = delete;
    std::vector<uint32_t> streams;
    std::vector<uint64_t> requests;
    std::vector<uint32_t> chosen, distinct, counts;
    moorage::step view{};
};

// Every token ever seen, with its whole routing; scores are kept per stream and token.
struct token_account {
    uint32_t stream;
    std::vector<std::set<uint32_t>> routing;  // [layer]
    int previous = -1, next = -1;
};
class history_account {
public:
    history_account(uint32_t layers, uint32_t rows) : layers_(layers), rows_(rows) {}
    void step(uint64_t visit, const std::vector<uint32_t> &streams, const sets &tokens) {
        const auto layer = static_cast<uint32_t>(visit % layers_);
        if (layer == 0) begin(streams);
        for (size_t i = 0; i < streams.size(); ++i)
            seen_tokens[pass_first + i].routing[layer] = {tokens[i].begin(), tokens[i].end()};
        for (size_t i = 0; i < streams.size(); ++i) {
            if (last_of(streams, i) != i) continue;
            for (size_t candidate = 0; candidate < seen_tokens.size(); ++candidate)
                for (const uint32_t expert : tokens[i])
                    scores[streams[i]][candidate] +=
                        seen_tokens[candidate].routing[layer].contains(expert);
        }
    }
    // Complete tokens of the window, best first, newest first.
    std::vector<size_t> best(uint32_t stream, size_t count, size_t window) {
        std::vector<size_t> order;
        for (size_t i = pass_first; i-- > 0 && i + window >= pass_first;) order.push_back(i);
        const std::vector<float> &stream_scores = scores[stream];
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return stream_scores[a] > stream_scores[b]; });
        order.resize(std::min(order.size(), count));
        return order;
    }
    std::vector<token_account> seen_tokens;
    std::map<uint32_t, std::vector<float>> scores;
    size_t pass_first = 0;

private:
    static size_t last_of(const std::vector<uint32_t> &streams, size_t index) {
        for (size_t i = streams.size(); i-- > index;)
            if (streams[i] == streams[index]) return i;
        return index;
    }
    void begin(const std::vector<uint32_t> &streams) {
        pass_first = seen_tokens.size();
        for (const uint32_t stream : streams) {
            token_account added{stream, std::vector<std::set<uint32_t>>(layers_)};
            if (last.contains(stream)) {
                added.previous = last[stream];
                seen_tokens[added.previous].next = static_cast<int>(seen_tokens.size());
            }
            last[stream] = static_cast<int>(seen_tokens.size());
            seen_tokens.push_back(added);
        }
        for (const uint32_t stream : std::set<uint32_t>(streams.begin(), streams.end())) {
            const std::vector<float> old = scores[stream];
            std::vector<float> now(seen_tokens.size(), 0);
            const bool is_single = std::count(streams.begin(), streams.end(), stream) == 1;
            for (size_t i = 0; is_single && i < seen_tokens.size(); ++i)
                if (const auto previous = static_cast<size_t>(seen_tokens[i].previous);
                    previous < old.size() &&
                    previous + rows_ >= seen_tokens.size())  // still in the ring
                    now[i] = 0.25f * old[previous];
            scores[stream] = now;
        }
    }
    const uint32_t layers_, rows_;
    std::map<uint32_t, int> last;
};

std::vector<uint32_t> random_set(std::mt19937_64 &generator, uint32_t experts, uint32_t count) {
    std::vector<uint32_t> numbers(experts);
    for (uint32_t i = 0; i < experts; ++i) numbers[i] = i;
    std::shuffle(numbers.begin(), numbers.end(), generator);
    numbers.resize(count);
    return numbers;
}

}  // namespace

TEST_CASE("rates after two visits, by hand") {
    learning::use_values values;
    learning::stream_groups groups;
    const moorage_limits limits = limits_of(1, 2, 1);
    groups.activate(limits);
    values.activate(limits, learning::lanes_of("auto"), {0.75f, 3e-4f, 1});
    values.reset();
    const auto visit = [&](uint64_t index, uint32_t expert) {
        const made_step step(1, 2, index, {0}, {{expert}});
        groups.gather(step.view);
        values.count(step.view, groups.all());
        values.join_request(step.view, groups.all()[0], true);
        values.learn();
    };
    visit(0, 0);
    // All rates begin at 1/2. Half-life 2 moves by 1 - 2^(-1/2) = 0.29289, the others by 1/8.
    CHECK(values.rate_of(0, 0)[0] == doctest::Approx(0.64645).epsilon(1e-4));
    CHECK(values.rate_of(0, 0)[1] == doctest::Approx(0.35355).epsilon(1e-4));
    for (uint32_t rate = 1; rate < 4; ++rate)
        CHECK(values.rate_of(0, rate)[0] == doctest::Approx(0.5625).epsilon(1e-6));
    visit(1, 1);
    // Now by 0.29289 and 1/9.
    CHECK(values.rate_of(0, 0)[0] == doctest::Approx(0.45711).epsilon(1e-4));
    CHECK(values.rate_of(0, 1)[0] == doctest::Approx(0.5).epsilon(1e-6));
    CHECK(values.rate_of(0, 1)[1] == doctest::Approx(0.5).epsilon(1e-6));
    for (uint64_t index = 2; index < 40; ++index) visit(index, 0);
    // By then half-life 8 has its own pace, 1 - 2^(-1/8); 128 still goes by 1 / (visits + 8).
    const float r8 = values.rate_of(0, 1)[0], r128 = values.rate_of(0, 3)[0];
    visit(40, 1);
    CHECK(values.rate_of(0, 1)[0] == doctest::Approx(r8 * std::exp2(-1.0 / 8)).epsilon(1e-5));
    CHECK(values.rate_of(0, 3)[0] == doctest::Approx(r128 * (1 - 1.0 / 48)).epsilon(1e-5));
    // Expert 0 was used in 39 of 41 visits, 1 in 2: its next use is nearer.
    CHECK(values.values_of(0)[0] > values.values_of(0)[1]);
}

TEST_CASE("a planted repetition, by hand") {
    // Two layers, two of six experts: tokens A B C A B, where C has one expert of A in layer 0.
    const sets a = {{0, 1}, {2, 3}}, b = {{2, 3}, {4, 5}}, c = {{0, 4}, {0, 1}};
    route_history history;
    history.activate(limits_of(2, 6, 2), learning::lanes_of("auto"), {16, 2, 0.25f, 0.5f});
    history.reset();
    learning::stream_groups groups;
    groups.activate(limits_of(2, 6, 2));
    uint64_t visit = 0;
    for (const sets &token : {a, b, c, a, b})
        for (const auto &layer : token) {
            const made_step step(2, 6, visit++, {0}, {layer});
            groups.gather(step.view);
            history.record(step.view);
            history.match(step.view, groups.all()[0]);
        }
    // Against the second B: the first B (lag 3) shares 4, and A before it 4 a token ago, a quarter:
    // 5. C (lag 2) shares none, and B before it shared none with A: 0. A (lag 1) shares none, but C
    // before it shared one of A, in layer 0: a quarter.
    const auto found = history.matches(0);
    REQUIRE(found.rows.size() == 2);
    CHECK(found.rows[0] == 1);
    CHECK(found.rows[1] == 3);
    CHECK(found.weights[0] == 1);
    // Sharpness 1/2 of 2 layers of 2 experts: e^((0.25 - 5) / 2).
    CHECK(found.weights[1] == doctest::Approx(std::exp(-2.375)).epsilon(1e-5));
    CHECK(found.total == doctest::Approx(1 + std::exp(-2.375)).epsilon(1e-5));
    // In layer 1, after the first B came C {0, 1}, then A {2, 3}, then B {4, 5}; after the first
    // ended A came B, now the running token, and nothing since.
    std::vector<float> next(64), soon(64);
    history.follow(0, next.data(), soon.data());
    const float w = found.weights[1];
    const std::vector<float> next_expected = {1, 1, 0, 0, w, w},
                             soon_expected = {0, 0, 0.9f, 0.9f, 0.81f, 0.81f};
    for (uint32_t e = 0; e < 6; ++e) {
        CHECK(next[e] == doctest::Approx(next_expected[e]));
        CHECK(soon[e] == doctest::Approx(soon_expected[e]));
    }
    // One layer step ahead is layer 0 of the next token: C, and after A the running B.
    std::vector<float> ahead(64);
    CHECK(history.add_uses_ahead(0, 1, ahead.data()) == doctest::Approx(found.total));
    const std::vector<float> ahead_expected = {1, 0, w, w, 1, 0};
    for (uint32_t e = 0; e < 6; ++e) CHECK(ahead[e] == doctest::Approx(ahead_expected[e]));
    // Two ahead: only the first B's successor is known.
    std::fill(ahead.begin(), ahead.end(), 0.0f);
    history.add_uses_ahead(0, 2, ahead.data());
    CHECK(ahead[0] == 1);
}

TEST_CASE("streams of any batches are matched as the account says") {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        std::mt19937_64 generator(seed);
        const auto below = [&](uint32_t bound) { return uint32_t(generator() % bound); };
        const bool many = seed % 6 == 0;  // more than the nibbles of count_few hold
        const uint32_t layers = 1 + below(3), experts = (many ? 24 : 4) + below(40);
        const uint32_t top_k = (many ? 16 : 1) + below(3);
        const uint32_t streams = 1 + below(4), window = 16 + below(30), best = 1 + below(8);
        const moorage_limits limits = limits_of(layers, experts, top_k, streams);
        route_history history;
        history.activate(limits, learning::lanes_of("auto"), {window, best, 0.25f, 0.5f});
        history.reset();
        learning::stream_groups groups;
        groups.activate(limits);
        history_account account(layers, history.row_count());
        uint64_t visit = 0;
        for (uint32_t pass = 0; pass < 60; ++pass) {
            // Streams rest now and then; a pass may be a prefill of one stream.
            std::vector<uint32_t> present;
            for (uint32_t stream = 0; stream < streams; ++stream)
                if (below(4) != 0) present.push_back(stream);
            if (present.empty()) present.push_back(below(streams));
            if (below(8) == 0) present.assign(1 + below(streams), below(streams));
            for (uint32_t layer = 0; layer < layers; ++layer, ++visit) {
                sets tokens;
                for (size_t i = 0; i < present.size(); ++i)
                    tokens.push_back(random_set(generator, experts, top_k));
                const made_step step(layers, experts, visit, present, tokens);
                account.step(visit, present, tokens);
                groups.gather(step.view);
                history.record(step.view);
                for (const auto &group : groups.all()) {
                    CAPTURE(seed);
                    CAPTURE(pass);
                    history.match(step.view, group);
                    const auto found = history.matches(group.stream);
                    const auto expected = account.best(group.stream, best, window);
                    REQUIRE(found.rows.size() == expected.size());
                    for (size_t i = 0; i < expected.size(); ++i)
                        REQUIRE(found.rows[i] == expected[i] % history.row_count());
                    std::vector<float> next(128), soon(128), next_expected(128);
                    history.follow(group.stream, next.data(), soon.data());
                    for (size_t i = 0; i < expected.size(); ++i)
                        if (const int next = account.seen_tokens[expected[i]].next; next >= 0)
                            for (const uint32_t e : account.seen_tokens[next].routing[layer])
                                next_expected[e] += found.weights[i];
                    REQUIRE(next == next_expected);
                }
            }
        }
    }
}

TEST_CASE("rows are counted in the columns of the chosen, by every form") {
    for (const char *simd : {"portable", "avx2", "avx512"}) {
        const learning::lane_kernels *form = nullptr;
        try {
            form = &learning::lanes_of(simd);
        } catch (const std::invalid_argument &) {
            MESSAGE("this processor has no " << simd);
            continue;
        }
        for (uint64_t seed = 0; seed < 60; ++seed) {
            std::mt19937_64 generator(seed);
            const uint32_t rows = 16 * (1 + uint32_t(generator() % 70)), experts = 40;
            const uint32_t stride = learning::padded_to_lanes((rows + 31) / 32);
            learning::lane_array<uint32_t> columns;
            learning::lane_array<float> scores;
            columns.assign(size_t{experts} * stride);
            scores.assign(rows);
            for (uint32_t expert = 0; expert < experts; ++expert)
                for (uint32_t row = 0; row < rows; ++row)
                    columns[expert * stride + row / 32] |= uint32_t(generator() % 2) << row % 32;
            std::vector<uint32_t> chosen;
            for (const uint32_t expert : random_set(generator, experts, 1 + seed % 30))
                chosen.push_back(expert);
            std::vector<float> expected(rows);
            for (uint32_t row = 0; row < rows; ++row) {
                scores[row] = expected[row] = 0.3f * static_cast<float>(row % 7);
                uint32_t common = 0;
                for (const uint32_t expert : chosen)
                    common += columns[expert * stride + row / 32] >> row % 32 & 1;
                expected[row] += static_cast<float>(common);
            }
            form->count_common(scores.data(), rows, columns.data(), stride, chosen.data(),
                               static_cast<uint32_t>(chosen.size()));
            CAPTURE(simd);
            CAPTURE(seed);
            for (uint32_t row = 0; row < rows; ++row) REQUIRE(scores[row] == expected[row]);
        }
    }
}

TEST_CASE("the vector forms agree bit for bit") {
    for (const char *simd : {"avx2", "avx512"}) {
        const learning::lane_kernels *form = nullptr;
        try {
            form = &learning::lanes_of(simd);
        } catch (const std::invalid_argument &) {
            MESSAGE("this processor has no " << simd);
            continue;
        }
        for (uint64_t seed = 0; seed < 20; ++seed) {
            std::mt19937_64 generator(seed);
            const auto below = [&](uint32_t bound) { return uint32_t(generator() % bound); };
            const uint32_t experts = 2 + below(150), top_k = 1 + below(std::min(6u, experts));
            const moorage_limits limits = limits_of(2, experts, top_k);
            learning::stream_groups groups;
            groups.activate(limits);
            learning::use_values portable, vectorised;
            portable.activate(limits, learning::lanes_of("portable"), {0.75f, 0.01f, 1});
            vectorised.activate(limits, *form, {0.75f, 0.01f, 1});
            portable.reset();
            vectorised.reset();
            for (uint64_t visit = 0; visit < 200; ++visit) {
                const made_step step(2, experts, visit, {0},
                                     {random_set(generator, experts, top_k)});
                groups.gather(step.view);
                for (learning::use_values *values : {&portable, &vectorised}) {
                    values->count(step.view, groups.all());
                    values->join_request(step.view, groups.all()[0], true);
                    values->learn();
                }
                for (uint32_t e = 0; e < experts; ++e) {
                    const float left = portable.values_of(step.view.layer)[e];
                    const float right = vectorised.values_of(step.view.layer)[e];
                    REQUIRE(std::bit_cast<uint32_t>(left) == std::bit_cast<uint32_t>(right));
                }
            }
        }
    }
}

TEST_CASE("logarithm and exponential are right to single precision") {
    const learning::lane_kernels &lanes = learning::lanes_of("portable");
    for (double p = 1e-4; p < 0.9999; p += 1e-4) {
        alignas(64) float input[16], odds[16], back[16];
        for (float &lane : input) lane = static_cast<float>(p);
        lanes.log_odds(odds, input, 16);
        lanes.chances(back, odds, 16);
        const double exact = std::log(double{input[0]} / (1 - double{input[0]}));
        REQUIRE(double{odds[0]} == doctest::Approx(exact).epsilon(1e-6).scale(1));
        REQUIRE(double{back[3]} == doctest::Approx(double{input[0]}).epsilon(2e-6));
    }
}

}  // namespace echo_parts_test

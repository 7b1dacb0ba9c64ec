// Goal: the moepic budget decides as Algorithm 1 of the paper, from counts by its definitions of H,
// P and PH. Its prefetch orders the missing segments. Method: worked cases and facts of the
// readings for the arithmetic itself. On random tokens, compare the library with the equations
// written out naively (moepic_definition.h). Brute force over the grid of VramAllocation for small
// models.
#include <doctest/doctest.h>

#include <numeric>

#include "moepic_definition.h"
#include "order_bytes.h"
#include "plugins/budget/moepic_allocation.h"
#include "plugins/budget/moepic_statistics.h"
#include "policy_host.h"

namespace moepic_test {

using namespace moorage::test;

namespace {

using parameter_map = std::map<std::string, std::string>;

// Counts of one layer, written down: N experts, over q tokens.
struct written {
    uint32_t N, q;
    std::vector<uint32_t> hit;                          // [place]
    std::vector<uint32_t> active;                       // [rank]
    std::vector<std::vector<uint32_t>> present_counts;  // [rank][place]
    uint32_t layer_count = 1;
    uint32_t layers() const { return layer_count; }
    uint32_t experts() const { return N; }
    uint64_t tokens(uint32_t) const { return q; }
    uint32_t hits(uint32_t, uint32_t place) const { return hit[place]; }
    uint32_t activated(uint32_t, uint32_t rank) const { return active[rank]; }
    uint32_t present(uint32_t, uint32_t rank, uint32_t place) const {
        return present_counts[rank][place];
    }
};

// The arithmetic over given counts.
class solver : public moepic::allocation {
public:
    template <class Counts>
    solver(const Counts &counts, uint32_t top_k, const moepic::times &durations,
           const moepic::allocation_options &options) {
        assign(counts.layers(), counts.experts(), top_k);
        read(counts, durations, options);
        scratch_.resize(counts.layers());
    }
    double split_total() {
        split_all(0, scratch_);
        return total(scratch_);
    }

private:
    moepic::layer_plans scratch_;
};

// Distinct experts, skewed towards small ids; the prediction is right more often than not.
struct token_maker {
    std::mt19937_64 generator;
    uint32_t experts, top_k;
    std::vector<uint32_t> draw(uint32_t count) {
        std::vector<uint32_t> drawn;
        while (drawn.size() < count) {
            const auto expert =
                static_cast<uint32_t>(std::min(generator() % experts, generator() % (2 * experts)));
            if (!holds(drawn, expert)) drawn.push_back(expert);
        }
        return drawn;
    }
    std::vector<uint32_t> predict(const std::vector<uint32_t> &chosen) {
        std::vector<uint32_t> predicted;
        for (const uint32_t expert : chosen)
            if (generator() % 3) predicted.push_back(expert);
        for (const uint32_t expert : draw(experts))
            if (!holds(predicted, expert)) predicted.push_back(expert);
        return predicted;
    }
};

struct asked {
    bool applied;
    std::vector<uint32_t> slots;
    std::vector<float> split;
    double gain_ns;
    double cost() const {
        double sum = 0;
        for (size_t i = 0; i < slots.size(); ++i) sum += slots[i] * double{split[i]};
        return sum;
    }
};

asked ask(policy_host &policy, uint32_t idle = 1, float split_step = 0) {
    asked got{false, policy.slots, policy.split, 0};
    const moorage_budget_request request{sizeof(request),     0,
                                         policy.shape.layers, policy.shape.experts,
                                         policy.shape.slots,  policy.shape.segments,
                                         policy.token,        policy.slots.data(),
                                         policy.split.data(), idle,
                                         split_step};
    moorage_budget_plan plan{sizeof(plan), 0, got.slots.data(), got.split.data(), 0};
    got.applied = policy.budget->plan(policy.plugin, &request, &plan) != 0;
    got.gain_ns = plan.gain_ns;
    if (got.applied) {
        CHECK(got.cost() <= policy.shape.slots + 1e-4);
        policy.slots = got.slots;
        policy.split = got.split;
    }
    return got;
}

void set_costs(policy_host &policy, uint64_t attention, uint64_t expert, uint64_t head,
               uint64_t load) {
    policy.costs.attention_ns = attention;
    policy.costs.gpu_expert_ns = expert;
    policy.costs.head_ns = head;
    policy.costs.load_ns = load;
}

}  // namespace

TEST_CASE("ExpertSplit by hand: four experts, two of them active, memory for one") {
    // Of ten tokens. H = .4 .6 .8 1 of two activations each; P = .9 .6 .3 .2;
    // PH(1) = .5 .7 .9 1, PH(2) = .3 .5 .8 1, the others fill the caches up.
    const written counts{4,
                         10,
                         {8, 4, 4, 4},
                         {9, 6, 3, 2},
                         {{5, 2, 2, 1}, {3, 2, 3, 2}, {1, 3, 3, 3}, {1, 3, 2, 4}}};
    const moepic::times times{6, 8, 6, 10};
    const double m[] = {1.67, 1.185, 1.16333333333333333, 1.175};
    for (uint32_t slots = 1; slots <= 4; ++slots) {
        // cost_of with theta = V / C gives m of every C, also of those that lose.
        solver memory(counts, 2, times, {1});
        const float split = 1.0f / static_cast<float>(slots);
        CHECK(memory.cost_of(std::vector<uint32_t>{slots}, std::vector<float>{split})[0]
                  .best.loaded == doctest::Approx(m[slots - 1]).epsilon(1e-7));
    }
    solver memory(counts, 2, times, {1});
    const auto plan = memory.solve();
    CHECK(plan[0].best.slots == 1);
    CHECK(plan[0].best.split == 1);
    // Two prefetches take (.5 + .7) * 10 = 12, all of the window; hidden 1.67 * 4, missing .33
    // * 10.
    CHECK(plan[0].best.loaded == doctest::Approx(1.67));
    CHECK(plan[0].exposed_ns == 0);
    // A window of one unit less holds one prefetch: m = .8 + .5 * .9 = 1.25 with C = 1, and
    // 1.185 with C = 2.
    solver shorter(counts, 2, {5, 8, 6, 10}, {1});
    CHECK(shorter.solve()[0].best.loaded == doctest::Approx(1.25));
    CHECK(shorter.solve()[0].exposed_ns == doctest::Approx(.75 * 10 - 1.25 * 4));
}

TEST_CASE("Eq. (5) to (7): what is exposed, and the window of the next layer") {
    // Two layers; nothing is ever predicted, everything that is cached hits.
    written counts{2, 1, {1, 1}, {0, 0}, {{0, 0}, {0, 0}}, 2};
    solver memory(counts, 2, {3, 8, 4, 10}, {2});
    const auto plans = memory.cost_of(std::vector<uint32_t>{2, 1}, std::vector<float>{1, 1});
    CHECK(plans[0].best.loaded == 2);
    CHECK(plans[0].exposed_ns == 0);
    CHECK(plans[1].best.loaded == 1);
    CHECK(plans[1].exposed_ns == 10 - 4);
    // Predictions that are always right, one prefetch in 10. The window is 4 + 3 for the first
    // layer. For the second it is 3, and the time in which the first layer computes and does not
    // wait.
    counts.active = {1, 1};
    solver predicted(counts, 2, {3, 8, 4, 10}, {2});
    const auto whole = predicted.cost_of(std::vector<uint32_t>{2, 0}, std::vector<float>{1, 1});
    CHECK(whole[1].best.loaded == 1);  // 8 + 3 - 0
    const auto half = predicted.cost_of(std::vector<uint32_t>{1, 0}, std::vector<float>{1, 1});
    CHECK(half[1].best.loaded == 0);  // 8 + 3 - min(4, 10)
}

TEST_CASE("uniform popularity: K H(C) theta is K V / N for every C, and the smallest C is taken") {
    const uint32_t N = 12;
    written counts{N, 120, std::vector<uint32_t>(N, 30), std::vector<uint32_t>(N, 0),
                   std::vector<std::vector<uint32_t>>(N, std::vector<uint32_t>(N, 10))};
    for (uint32_t room = 1; room <= N; ++room) {
        solver memory(counts, 3, {1, 3, 1, 1000}, {static_cast<double>(room)});
        for (uint32_t slots = room; slots <= N; ++slots) {
            const float split = static_cast<float>(room) / static_cast<float>(slots);
            const auto plans =
                memory.cost_of(std::vector<uint32_t>{slots}, std::vector<float>{split});
            CHECK(plans[0].best.loaded == doctest::Approx(3.0 * room / N).epsilon(1e-6));
        }
        CHECK(memory.solve()[0].best.slots == room);
        CHECK(memory.solve()[0].best.split == 1);
    }
}

TEST_CASE("one list of experts counts what separate caches of every size count") {
    for (const bool by_rank : {false, true})
        for (uint64_t seed = 0; seed < 60; ++seed) {
            CAPTURE(by_rank);
            CAPTURE(seed);
            std::mt19937_64 start(seed);
            const auto N = static_cast<uint32_t>(2 + start() % 9);
            const auto K = static_cast<uint32_t>(1 + start() % std::min(N, 4u));
            const uint64_t omega = 1 + start() % 6;
            token_maker maker{std::mt19937_64(seed), N, K};
            moepic::statistics fast(omega, 0.25, by_rank);
            fast.assign(1, N, K);
            layer_counts slow(N, K, static_cast<double>(omega), 0.25, by_rank);
            std::vector<bool> seen(N);
            double distinct = 0, fill = 0;
            const int q = 80;
            for (int token = 0; token < q; ++token) {
                const auto chosen = maker.draw(K);
                auto predicted = maker.predict(chosen);
                fill += static_cast<double>(slow.content_of(N).size());
                fast.count(0, chosen, predicted);
                slow.token(chosen, predicted);
                for (const uint32_t expert : chosen) {
                    distinct += seen[expert] ? 0 : 1;
                    seen[expert] = true;
                }
            }
            uint32_t hits = 0, right = 0;
            std::vector<uint32_t> present(N);
            for (uint32_t C = 1; C <= N; ++C) {
                hits += fast.hits(0, C - 1);
                REQUIRE(hits == slow.H[C]);
                uint32_t total = 0;
                for (uint32_t y = 0; y < N; ++y) {
                    present[y] += fast.present(0, y, C - 1);
                    REQUIRE(present[y] == slow.PH[y][C]);
                    total += present[y];
                }
                if (by_rank) CHECK(total == C * q);  // sum over y of PH(y, C) = C
                if (C == N) CHECK(total == fill);
            }
            for (uint32_t y = 0; y < N; ++y) {
                REQUIRE(fast.activated(0, y) == slow.P[y]);
                right += fast.activated(0, y);
            }
            CHECK(right == K * q);  // sum over y of P(y) = K
            CHECK(hits == (by_rank ? K * q : K * q - distinct));
        }
}

TEST_CASE("the plan is that of Algorithm 1 on naive counts") {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 start(seed);
        const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(start() % bound); };
        const uint32_t L = 1 + below(5), N = 3 + below(8), K = 1 + below(3);
        const bool by_rank = below(2) != 0;
        const policy_shape shape{L, N, K, L + below(L * N - L)};
        policy_host policy("budget/moepic", shape,
                           {{"tau", "100"},
                            {"omega", "8"},
                            {"statistics", by_rank ? "rank" : "sim"},
                            {"zeta", "0.02"}});
        uint32_t costs[4] = {300, 200, 500, 900};
        for (uint32_t &cost : costs) cost = below(cost);
        set_costs(policy, 50 + costs[0], 10 + costs[1], costs[2], 100 + costs[3]);
        const float step = below(2) ? 0.125f : 0;
        REQUIRE(ask(policy, 1, step).applied);
        std::vector<layer_counts> counts(L, layer_counts(N, K, 8, 0.25, by_rank));
        std::vector<token_maker> makers;
        for (uint32_t layer = 0; layer < L; ++layer)
            makers.push_back({std::mt19937_64(seed * 100 + layer), N, K});
        for (int token = 0; token < 100; ++token)
            for (uint32_t layer = 0; layer < L; ++layer) {
                const auto chosen = makers[layer].draw(K);
                const auto predicted =
                    token == 0 ? std::vector<uint32_t>{} : makers[layer].predict(chosen);
                policy.observe(layer, chosen, predicted);
                counts[layer].token(chosen, predicted);
            }
        const std::vector<uint32_t> slots_before = policy.slots;
        const std::vector<float> split_before = policy.split;
        const auto &c = policy.costs;
        const algorithm_1<layer_counts> naive{counts,
                                              N,
                                              static_cast<long double>(K),
                                              static_cast<long double>(c.attention_ns),
                                              static_cast<long double>(c.gpu_expert_ns) * K,
                                              static_cast<long double>(c.head_ns),
                                              static_cast<long double>(c.load_ns),
                                              static_cast<long double>(shape.slots),
                                              static_cast<long double>(0.02),
                                              step};
        const auto expected = naive.expert_split(naive.memory(naive.allocate()));
        const asked got = ask(policy, 1, step);
        // The present plan's value by the naive equations.
        long double old_value = 0, window = naive.head + naive.att;
        for (uint32_t layer = 0; layer < L; ++layer) {
            const auto r =
                naive.value(counts[layer], slots_before[layer], split_before[layer], window);
            const long double hide = r.m * naive.moe / K, miss = (K - r.m) * naive.load;
            old_value += std::max(0.0L, miss - hide);
            window = naive.moe - std::min(hide, miss) + naive.att;
        }
        const auto new_value = static_cast<double>(naive.sum(expected));
        if (!got.applied) {
            CHECK(static_cast<double>(old_value) <= new_value * (1 + 1e-5) + 1e-9);
            continue;
        }
        // Memory that rounding leaves may go into further slots, which can only help.
        CHECK(got.gain_ns >= (static_cast<double>(old_value) - new_value) * (1 - 1e-5) - 1e-3);
        if (step == 0)
            CHECK(got.gain_ns ==
                  doctest::Approx(static_cast<double>(old_value) - new_value).epsilon(1e-4));
        for (uint32_t layer = 0; layer < L; ++layer) {
            CAPTURE(layer);
            CHECK(got.slots[layer] >= expected[layer].C);
            if (step == 0) CHECK(got.slots[layer] == expected[layer].C);
            CHECK(got.split[layer] ==
                  doctest::Approx(static_cast<double>(expected[layer].theta)).epsilon(1e-6));
        }
    }
}

TEST_CASE(
    "VramAllocation: the sum stays, every move lowers the total, the grid has nothing lower") {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        token_maker maker{std::mt19937_64(seed), 8, 2};
        const uint32_t L = 3;
        moepic::statistics counts(4, 0.25, false);
        counts.assign(L, 8, 2);
        for (int token = 0; token < 60; ++token)
            for (uint32_t layer = 0; layer < L; ++layer) {
                maker.experts = 4 + 2 * layer;
                const auto chosen = maker.draw(2);
                counts.count(layer, chosen, maker.predict(chosen));
            }
        const moepic::times times{80, 60, 40, 300};
        solver memory(counts, 2, times, {9, 0.05});
        const double uniform = memory.split_total();
        const double found = memory.total(memory.solve());
        CHECK(found <= uniform);
        double sum = 0;
        for (uint32_t layer = 0; layer < L; ++layer) {
            CHECK(memory.memory(layer) > 0);
            sum += memory.memory(layer);
        }
        CHECK(sum == doctest::Approx(9).epsilon(1e-12));
        CHECK(found == doctest::Approx(memory.split_total()));
        // All ways to move twentieths of the memory between the three layers.
        double lowest = uniform;
        for (int a = -6; a <= 12; ++a)
            for (int b = -6; b <= 12; ++b) {
                const double rooms[] = {3 + a * .45, 3 + b * .45, 3 - (a + b) * .45};
                double window = times.head + times.attention, total = 0;
                bool possible = true;
                for (uint32_t layer = 0; layer < L && (possible = rooms[layer] > 1e-9); ++layer) {
                    const double m = memory.split(layer, rooms[layer], window).loaded;
                    const double hide = m * times.experts / 2, miss = (2 - m) * times.load;
                    total += std::max(0.0, miss - hide);
                    window = times.experts - std::min(hide, miss) + times.attention;
                    CHECK(window >= times.attention);
                    CHECK(window <= times.attention + times.experts);
                }
                if (possible) lowest = std::min(lowest, total);
            }
        CHECK(found >= lowest * (1 - 1e-12));
    }
}

TEST_CASE("before the first configuration all layers are alike, experts split in half") {
    policy_host policy("budget/moepic", {24, 60, 4, 288});
    const asked first = ask(policy, 0);
    REQUIRE(first.applied);
    CHECK(first.slots == std::vector<uint32_t>(24, 24));
    CHECK(first.split == std::vector<float>(24, 0.5f));
    // The remainder goes to the first layers. Steps of the split stay whole.
    policy_host odd("budget/moepic", {3, 8, 2, 5});
    CHECK(ask(odd).slots == std::vector<uint32_t>{4, 3, 3});
    policy_host steps("budget/moepic", {2, 8, 2, 4});
    const asked rounded = ask(steps, 1, 0.3f);
    CHECK(rounded.split == std::vector<float>(2, 0.3f));
    CHECK(rounded.slots == std::vector<uint32_t>{7, 6});  // 13 * 0.3 = 3.9
    // Room for more than half of everything, and for all.
    policy_host most("budget/moepic", {2, 4, 2, 6});
    CHECK(ask(most).split == std::vector<float>(2, 0.75f));
    policy_host everything("budget/moepic", {2, 4, 2, 9});
    const asked whole = ask(everything);
    CHECK(whole.slots == std::vector<uint32_t>{4, 4});
    CHECK(whole.split == std::vector<float>{1, 1});
    // Given splits stay, whole or not.
    policy_host uncut("budget/moepic", {3, 8, 2, 7, false, 1});
    const asked given_split = ask(uncut);
    CHECK(given_split.slots == std::vector<uint32_t>{3, 2, 2});
    CHECK(given_split.split == std::vector<float>(3, 1));
}

TEST_CASE("configured every tau tokens, when the device is idle, and only for the better") {
    for (const bool waits : {true, false}) {
        policy_host policy(
            "budget/moepic", {2, 6, 2, 4},
            {{"tau", "40"}, {"first_tokens", "10"}, {"when", waits ? "idle" : "due"}});
        set_costs(policy, 100, 50, 100, 1000);
        REQUIRE(ask(policy, 0).applied);
        CHECK(policy.budget->interval(policy.plugin) == 10);
        token_maker maker{std::mt19937_64(3), 6, 2};
        const auto go = [&](int tokens) {
            for (int token = 0; token < tokens; ++token)
                for (uint32_t layer = 0; layer < 2; ++layer) {
                    const auto chosen = maker.draw(2);
                    policy.observe(layer, chosen, maker.predict(chosen));
                }
        };
        go(9);
        CHECK(policy.budget->interval(policy.plugin) == 1);
        CHECK_FALSE(ask(policy).applied);
        CHECK(policy.lines.empty());
        go(1);
        CHECK(policy.budget->interval(policy.plugin) == 1);
        ask(policy, 0);
        CHECK(policy.lines.size() == (waits ? 0u : 1u));
        go(3);
        CHECK(policy.budget->interval(policy.plugin) == (waits ? 1 : 27));
        const asked got = ask(policy, 1);
        REQUIRE(policy.lines.size() == 1);
        if (waits) {
            CHECK(got.applied);
            CHECK(got.gain_ns > 0);
        }
        CHECK(policy.lines[0].starts_with("moepic: after 1"));
        CHECK(policy.budget->interval(policy.plugin) == 27);  // the next multiple of tau is 40
        go(27);
        ask(policy);
        CHECK(policy.lines.size() == 2);
        CHECK(policy.budget->interval(policy.plugin) == 40);
        policy.plugin->reset(policy.plugin);
        CHECK(policy.budget->interval(policy.plugin) == 10);
    }
    // A gain that is asked for and cannot be had.
    policy_host content("budget/moepic", {2, 6, 2, 4}, {{"tau", "5"}, {"min_gain", "1"}});
    set_costs(content, 100, 50, 100, 1000);
    REQUIRE(ask(content).applied);
    for (uint32_t token = 0; token < 5; ++token)
        for (uint32_t layer = 0; layer < 2; ++layer) content.observe(layer, {token, token + 1});
    CHECK_FALSE(ask(content).applied);
    CHECK(content.lines.back().ends_with("left as it is"));
    // Without costs, as in a replay, there is nothing to configure by.
    policy_host untimed("budget/moepic", {2, 6, 2, 4}, {{"tau", "1"}}, false);
    REQUIRE(ask(untimed).applied);
    for (uint32_t layer = 0; layer < 2; ++layer) untimed.observe(layer, {0, 1});
    CHECK_FALSE(ask(untimed).applied);
}

TEST_CASE("splits that may not change: slots go where they save most") {
    policy_host policy("budget/moepic", {2, 8, 1, 6, false, 1}, {{"tau", "200"}});
    set_costs(policy, 10, 10, 10, 1000);
    REQUIRE(ask(policy).slots == std::vector<uint32_t>{3, 3});
    // Layer 0 uses one expert, layer 1 any of five.
    std::mt19937_64 generator(1);
    for (int token = 0; token < 200; ++token) {
        policy.observe(0, {2});
        policy.observe(1, {static_cast<uint32_t>(generator() % 5)});
    }
    const asked got = ask(policy);
    REQUIRE(got.applied);
    CHECK(got.slots == std::vector<uint32_t>{1, 5});
    CHECK(got.split == std::vector<float>{1, 1});
}

TEST_CASE(
    "prefetch: best predicted first, the bottom of what has its top here, within the buffer") {
    policy_host policy("budget/moepic", {2, 8, 2, 8});
    CHECK(policy.prefetch->horizon(policy.plugin) == 1);
    uint32_t *state = policy.state.data() + 8;  // layer 1
    state[3] = MOORAGE_SEGMENT(0, 2);
    state[5] = MOORAGE_WHOLE;
    state[6] = MOORAGE_SEGMENT(0, 2) | MOORAGE_SEGMENT(1, 2) << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    state[7] = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    state[2] = MOORAGE_SEGMENT(0, 2) | MOORAGE_SEGMENT(1, 2) << MOORAGE_STATE_BUFFERED_SHIFT;
    state[4] = MOORAGE_SEGMENT(0, 2) << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    const uint32_t layer = 1, offsets[] = {0, 8}, experts[] = {5, 3, 0, 6, 7, 2, 4, 1};
    moorage_forecast forecast{};
    forecast.size = sizeof(forecast);
    forecast.target_count = 1;
    forecast.buffer_free = 8;
    forecast.host_layers = &layer;
    forecast.host_offsets = offsets;
    forecast.host_experts = experts;
    moorage_step step{};
    step.size = sizeof(step);
    step.experts = 8;
    std::vector<uint32_t> pages(8);
    std::vector<uint8_t> segments(8, MOORAGE_WHOLE);
    moorage_orders orders{sizeof(orders), 0, 8, 0, pages.data(), segments.data(), order_bytes(),
                          order_bytes()};
    REQUIRE(policy.prefetch->plan(policy.plugin, &step, &forecast, &orders) == 4);
    pages.resize(4);
    segments.resize(4);
    CHECK(pages == std::vector<uint32_t>{11, 8, 12, 9});
    CHECK(segments == std::vector<uint8_t>{MOORAGE_SEGMENT(1, 2), MOORAGE_WHOLE,
                                           MOORAGE_SEGMENT(1, 2), MOORAGE_WHOLE});
    forecast.buffer_free = 2;
    CHECK(policy.prefetch->plan(policy.plugin, &step, &forecast, &orders) == 2);
    forecast.target_count = 0;
    CHECK(policy.prefetch->plan(policy.plugin, &step, &forecast, &orders) == 0);
}

}  // namespace moepic_test

// score_test.cpp - goal: cache `score` evicts by SMoE's Equation 3 for any pools, batches and
// windows, and its sums do not drift. Method: compute the equation over the whole history, anew at
// every victim, on random scores with and without exact ties, random pins, prefetches and
// evictions.
#include <doctest/doctest.h>

#include <deque>
#include <set>

#include "policy_drive.h"

namespace score_test {

using namespace moorage::test;

namespace {

// All scores since the start, as the policy gets them.
struct history {
    uint32_t experts, window;
    bool mean;
    std::vector<std::vector<std::vector<double>>> steps;  // [layer][step][expert]

    void add(const drawn_step &step, bool chosen_only) {
        std::vector<double> scores(experts, 0);
        for (size_t token = 0; token < step.scores.size(); ++token)
            for (uint32_t expert = 0; expert < experts; ++expert) {
                const auto &chosen = step.chosen[token];
                if (chosen_only && std::find(chosen.begin(), chosen.end(), expert) == chosen.end())
                    continue;
                const double score = static_cast<double>(step.scores[token][expert]);
                scores[expert] = mean ? scores[expert] + score : std::max(scores[expert], score);
            }
        if (mean)
            for (double &score : scores) score /= static_cast<double>(step.scores.size());
        steps[step.layer].push_back(scores);
    }
    // Equation 3 with j the last step of the page's layer.
    double mean_score(uint32_t page) const {
        const auto &layer_steps = steps[page / experts];
        if (layer_steps.empty()) return 0;
        const size_t count = std::min<size_t>(window + 1, layer_steps.size());
        double sum = 0;
        for (size_t i = layer_steps.size() - count; i < layer_steps.size(); ++i)
            sum += layer_steps[i][page % experts];
        return sum / static_cast<double>(count);
    }
    std::vector<uint32_t> victims(const std::vector<uint32_t> &candidates, uint32_t count) const {
        std::vector<std::pair<double, uint32_t>> order;
        for (const uint32_t page : candidates) order.emplace_back(mean_score(page), page);
        std::sort(order.begin(), order.end());
        std::vector<uint32_t> going;
        for (size_t i = 0; i < std::min<size_t>(count, order.size()); ++i)
            going.push_back(order[i].second);
        return going;
    }
};

struct variant {
    bool shared;
    uint32_t window, grid, tokens;
    bool mean, chosen_only;
};

bool pinned(uint32_t state) { return (state & MOORAGE_STATE_PINNED) != 0; }

// A host in miniature: pins the step's experts, asks for room, evicts and loads. Now and then a
// prefetch takes a slot, or the budget removes one.
class host_in_miniature {
public:
    host_in_miniature(const variant &tested, uint64_t seed) : tested_(tested), draw_(seed) {
        world_.layers = 1 + static_cast<uint32_t>(draw_() % 4);
        world_.experts = 4 + static_cast<uint32_t>(draw_() % 8);
        world_.top_k = 1 + static_cast<uint32_t>(draw_() % 3);
        world_.tokens_max = 8;
        world_.shared = tested.shared;
        const uint32_t pages = world_.experts * (tested.shared ? world_.layers : 1);
        world_.slots = 1 + static_cast<uint32_t>(draw_() % pages);
        world_.make();
        expected_ = {world_.experts, tested.window, tested.mean, {}};
        expected_.steps.resize(world_.layers);
        policy_.emplace_back(
            "cache/score", tested.chosen_only ? "score_chosen" : "score", world_,
            std::map<std::string, std::string>{{"window", std::to_string(tested.window)},
                                               {"batch", tested.mean ? "mean" : "max"}});
    }
    void run(uint32_t tokens) {
        for (uint32_t token = 0; token < tokens; ++token)
            for (uint32_t layer = 0; layer < world_.layers; ++layer) step(layer);
    }
    uint64_t victims = 0;

private:
    uint32_t pool(uint32_t page) const { return tested_.shared ? 0 : page / world_.experts; }
    std::vector<uint32_t> candidates(uint32_t wanted_pool) const {
        std::vector<uint32_t> pages;
        for (uint32_t page = 0; page < world_.state.size(); ++page)
            if (pool(page) == wanted_pool && (world_.state[page] & MOORAGE_WHOLE) &&
                !pinned(world_.state[page]) && !(world_.state[page] & MOORAGE_STATE_BUFFERED))
                pages.push_back(page);
        return pages;
    }
    std::vector<uint32_t> make_room(uint32_t wanted_pool, uint32_t layer, uint32_t count,
                                    int32_t cause) {
        const moorage_room room{sizeof(room), 0, wanted_pool, layer, count, cause};
        std::vector<uint32_t> got(count);
        driven_policy &policy = policy_.front();
        got.resize(policy.cache->victims(policy.plugin, &room, got.data()));
        const auto expected = expected_.victims(candidates(wanted_pool), count);
        CHECK(got == expected);
        victims += expected.size();
        return expected;
    }
    void evict(uint32_t page, int32_t cause) {
        world_.state[page] &= MOORAGE_STATE_PINNED;
        --world_.used[pool(page)];
        policy_.front().cache->on_evict(policy_.front().plugin, page, cause);
    }
    void load(uint32_t page, int32_t cause) {
        const uint32_t pool_index = pool(page);
        if (world_.used[pool_index] == world_.slots_of[pool_index]) {
            const auto going = make_room(pool_index, page / world_.experts, 1, cause);
            if (going.empty()) return;
            evict(going[0], cause);
        }
        ++world_.used[pool_index];
        world_.state[page] |= MOORAGE_WHOLE;
        policy_.front().cache->on_load(policy_.front().plugin, page, MOORAGE_WHOLE, cause);
    }
    void step(uint32_t layer) {
        drawn_step drawn;
        drawn.layer = layer;
        drawn.index = index_++;
        drawn.experts = world_.experts;
        drawn.top_k = world_.top_k;
        for (uint64_t tokens = tested_.tokens == 1 ? 1 : uint64_t{1} << draw_() % 3; tokens > 0;
             --tokens) {
            drawn.scores.push_back(draw_scores(draw_, world_.experts, tested_.grid));
            drawn.chosen.push_back(ranking(drawn.scores.back()));
            drawn.chosen.back().resize(world_.top_k);
        }
        std::set<uint32_t> asked;
        for (const auto &token_experts : drawn.chosen)
            for (const uint32_t expert : token_experts)
                asked.insert(layer * world_.experts + expert);
        for (const uint32_t page : asked) world_.state[page] |= MOORAGE_STATE_PINNED;
        driven_policy &policy = policy_.front();
        policy.observer->observe(policy.plugin, &drawn.table());
        expected_.add(drawn, tested_.chosen_only);
        const uint32_t pool_index = pool(layer * world_.experts);
        // Sometimes several at once, which then do not all go.
        if (draw_() % 4 == 0 && world_.slots_of[pool_index] > 0)
            make_room(pool_index, layer,
                      1 + static_cast<uint32_t>(draw_() % world_.slots_of[pool_index]),
                      MOORAGE_DEMAND);
        for (const uint32_t page : asked)
            if ((world_.state[page] & MOORAGE_WHOLE) == 0) load(page, MOORAGE_DEMAND);
        for (const uint32_t page : asked) world_.state[page] &= MOORAGE_WHOLE;
        disturb();
    }
    void disturb() {
        const auto page = static_cast<uint32_t>(draw_() % world_.state.size());
        if (draw_() % 8 == 0 && world_.state[page] == 0) load(page, MOORAGE_PREFETCH);
        const auto waiting = static_cast<uint32_t>(draw_() % world_.state.size());
        if (world_.state[waiting] == 0 && draw_() % 8 == 0)  // in the buffer, for one step
            world_.state[waiting] = MOORAGE_WHOLE | int{MOORAGE_STATE_BUFFERED};
        else if (world_.state[waiting] & MOORAGE_STATE_BUFFERED)
            world_.state[waiting] = 0;
        const auto removed = static_cast<uint32_t>(draw_() % world_.state.size());
        if (draw_() % 16 == 0 && (world_.state[removed] & MOORAGE_STATE_BUFFERED) == 0 &&
            (world_.state[removed] & MOORAGE_WHOLE))
            evict(removed, MOORAGE_BUDGET);
    }

    const variant tested_;
    std::mt19937_64 draw_;
    policy_world world_;
    history expected_{};
    std::deque<driven_policy> policy_;
    uint64_t index_ = 0;
};

}  // namespace

TEST_CASE("equation 3 over the whole history, at every victim") {
    uint64_t victims = 0, seed = 1;
    for (const bool shared : {false, true})
        for (const uint32_t window : {0u, 1u, 3u, 16u, 1000u})
            for (const uint32_t grid : {0u, 8u})  // in eighths everything is exact and often ties
                for (const uint32_t tokens : {1u, 4u})  // 4: one, two or four, which divide exactly
                    for (const bool mean : {false, true})
                        for (const bool chosen_only : {false, true})
                            for (int repeat = 0; repeat < 3; ++repeat) {
                                host_in_miniature host(
                                    {shared, window, grid, tokens, mean, chosen_only}, seed++);
                                host.run(40);
                                victims += host.victims;
                            }
    CHECK(victims > 20000);
}

TEST_CASE("by hand: two experts of the past against one of the present") {
    policy_world world;
    world.experts = 3;
    world.top_k = 1;
    world.slots = 3;
    world.make();
    driven_policy policy("cache/score", "score", world, {{"window", "1"}});
    for (uint32_t page = 0; page < 3; ++page) {
        world.state[page] = MOORAGE_WHOLE;
        policy.cache->on_load(policy.plugin, page, MOORAGE_WHOLE, MOORAGE_DEMAND);
    }
    const auto observe = [&](std::vector<float> scores) {
        drawn_step step;
        step.experts = 3;
        step.top_k = 1;
        step.chosen = {{0}};
        step.scores = {std::move(scores)};
        policy.observer->observe(policy.plugin, &step.table());
    };
    const auto order = [&] {
        const moorage_room room{sizeof(room), 0, 0, 0, 3, MOORAGE_DEMAND};
        std::vector<uint32_t> pages(3);
        pages.resize(policy.cache->victims(policy.plugin, &room, pages.data()));
        return pages;
    };
    CHECK(order() == std::vector<uint32_t>{0, 1, 2});  // nothing is known: the smallest page
    observe({0.5f, 0.3f, 0.2f});
    CHECK(order() == std::vector<uint32_t>{2, 1, 0});
    observe({0.1f, 0.2f, 0.7f});  // means 0.3, 0.25, 0.45
    CHECK(order() == std::vector<uint32_t>{1, 0, 2});
    observe({0.2f, 0.2f, 0.1f});  // the first step has left: 0.15, 0.2, 0.4
    CHECK(order() == std::vector<uint32_t>{0, 1, 2});
    world.state[0] |= MOORAGE_STATE_PINNED;  // the shield
    CHECK(order() == std::vector<uint32_t>{1, 2});
}

TEST_CASE("nothing is left of scores that have left the window") {
    policy_world world;
    world.experts = 4;
    world.top_k = 1;
    world.slots = 4;
    world.make();
    driven_policy policy("cache/score", "score", world, {{"window", "4"}});
    for (uint32_t &state : world.state) state = MOORAGE_WHOLE;
    std::mt19937_64 draw(9);
    for (uint32_t i = 0; i < 20000; ++i) {
        drawn_step step;
        step.experts = 4;
        step.top_k = 1;
        step.chosen = {{0}};
        // Sums of floats of such different size would round.
        step.scores = {draw_scores(draw, 4, 0)};
        for (float &score : step.scores[0])
            if (draw() % 2) score *= 1e-7f;
        if (i >= 20000 - 5) step.scores = {{0.1f, 0.1f, 0.1f, 0.1f}};
        policy.observer->observe(policy.plugin, &step.table());
    }
    const moorage_room room{sizeof(room), 0, 0, 0, 4, MOORAGE_DEMAND};
    std::vector<uint32_t> pages(4);
    REQUIRE(policy.cache->victims(policy.plugin, &room, pages.data()) == 4);
    CHECK(pages == std::vector<uint32_t>{0, 1, 2, 3});  // exact ties: the smallest page
}

TEST_CASE("prefill steps count or not; reset forgets") {
    policy_world world;
    world.experts = 2;
    world.top_k = 1;
    world.slots = 2;
    world.make();
    world.state = {MOORAGE_WHOLE, MOORAGE_WHOLE};
    for (const bool counts : {true, false}) {
        driven_policy policy("cache/score", "score", world, {{"prefill", counts ? "1" : "0"}});
        const auto first = [&] {
            const moorage_room room{sizeof(room), 0, 0, 0, 1, MOORAGE_DEMAND};
            uint32_t page = MOORAGE_NONE;
            CHECK(policy.cache->victims(policy.plugin, &room, &page) == 1);
            return page;
        };
        drawn_step step;
        step.experts = 2;
        step.top_k = 1;
        step.phase = MOORAGE_PREFILL;
        step.chosen = {{0}};
        step.scores = {{0.9f, 0.1f}};
        policy.observer->observe(policy.plugin, &step.table());
        CHECK(first() == (counts ? 1u : 0u));
        policy.plugin->reset(policy.plugin);
        CHECK(first() == 0);
    }
}

}  // namespace score_test

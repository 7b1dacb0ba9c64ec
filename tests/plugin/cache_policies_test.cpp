// Goal: the cache policies behave as in the layered-paging paper, as read in
// plugins/cache/README.md. Method: the hand-worked examples eviction by eviction, facts that hold
// for every right implementation on random traces, and known miss ratios of a family of synthetic
// traces.
#include <doctest/doctest.h>

#include "harness.h"

namespace cache_policies_test {

using namespace moorage::test;

namespace {

// One line per eviction, "6:A1": time from 1, layer letter, expert number from 1.
std::string evictions(const replayed &run, uint32_t experts) {
    std::string text;
    for (size_t i = 0; i < run.results.size(); ++i) {
        const uint32_t page = run.results[i];
        if (page == MOORAGE_REPLAY_KEPT) continue;
        if (!text.empty()) text += ' ';
        text += std::to_string(i + 1) + ':' + static_cast<char>('A' + page / experts) +
                std::to_string(page % experts + 1);
    }
    return text;
}

uint64_t distinct_pages(const routing &tokens, uint32_t experts) {
    std::vector<bool> seen(tokens[0].size() * experts);
    for (const auto &token : tokens)
        for (uint32_t layer = 0; layer < token.size(); ++layer)
            for (const uint32_t expert : token[layer]) seen[layer * experts + expert] = true;
    return static_cast<uint64_t>(std::count(seen.begin(), seen.end(), true));
}

struct variant {
    const char *name;
    parameters params;
};
const std::vector<variant> everyone = {
    {"lru", {}},
    {"fifo", {}},
    {"lfu", {{"half_life", "0"}}},
    {"lfu", {{"half_life", "8"}}},
    {"llru", {}},
    {"sieve", {}},
    {"clock", {}},
    {"random", {}},
    {"llru", {{"distance", "literal"}}},
    {"marking", {}},
    {"belady", {}},
};

// Every token takes the same expert number in all layers: 0, 1, .., experts - 1, 0, ..
routing cycle(uint32_t tokens, uint32_t layers, uint32_t experts) {
    routing result(tokens, std::vector<std::vector<uint32_t>>(layers));
    for (uint32_t token = 0; token < tokens; ++token)
        for (auto &layer : result[token]) layer = {token % experts};
    return result;
}

}  // namespace

TEST_CASE("worked example: five tokens, LLRU against LRU") {
    // A1 B1 C1 | A2 B2 C2 | A1 B1 C1 | A2 B2 C2 | A1 B1 C1, five slots.
    const routing tokens = cycle(5, 3, 2);
    const cache_shape shape{3, 2, 1, true, 5};
    const auto run = [&](const char *name, const parameters &params) {
        return replay_library(name, shape, tokens, order::rounds, params);
    };
    const replayed lru = run("lru", {});
    CHECK(evictions(lru, 2) == "6:A1 7:B1 8:C1 9:A2 10:B2 11:C2 12:A1 13:B1 14:C1 15:A2");
    CHECK(lru.misses == 15);
    // At t = 6: (R, D) of A1 (1,1), B1 (1,2), C1 (1,3), A2 (0,1), B2 (0,2): C1 goes.
    const replayed llru = run("llru", {});
    CHECK(evictions(llru, 2) == "6:C1 9:C2 12:C1 15:C2");
    CHECK(llru.misses == 9);
    // Literally C1 has (1,0) at t = 6, so B1 goes; at t = 8 (B1): A1 (0,2), C1 (1,1), A2 (1,2),
    // B2 (1,0), C2 (0,1): A2 goes.
    const replayed literal = run("llru", {{"distance", "literal"}});
    CHECK(evictions(literal, 2).starts_with("6:B1 8:A2 "));
    CHECK(literal.misses == 10);
    const replayed best = run("belady", {});
    CHECK(evictions(best, 2) == "6:B2 11:A2");
    CHECK(best.misses == 7);
}

TEST_CASE("worked example: token mode, three slots") {
    // Loads a0, a1; b0, b1 evicts a0; a1 hits, a2 evicts b0; b0 evicts b1, b2 evicts a1.
    const routing tokens = {{{0, 1}, {0, 1}}, {{1, 2}, {0, 2}}};
    const replayed lru = replay_library("lru", {2, 3, 2, true, 3}, tokens, order::token);
    constexpr uint32_t kept = MOORAGE_REPLAY_KEPT, a0 = 0, a1 = 1, b0 = 3, b1 = 4;
    CHECK(lru.results == outcomes{kept, kept, kept, a0, kept, b0, b1, a1});
    CHECK(lru.misses == 7);
    // The other order of stamps: a1 and b1 are the older ones of their steps, so b1 evicts a1, a1
    // evicts a0, a2 evicts b1; b0 is still there and hits, b2 evicts a2, the older of its step.
    const replayed last =
        replay_library("lru", {2, 3, 2, true, 3}, tokens, order::token, {{"stamp", "best_last"}});
    CHECK(last.results == outcomes{kept, kept, kept, a1, a0, b1, kept, 2});
    CHECK(last.misses == 7);
}

TEST_CASE("figure 3: priorities of one step") {
    // Six layers; layer 4 is served for the third time. Pages leave the cache in the order printed
    // after the step. Tokens 1 and 2 use expert 0 and 1 everywhere, token 3 expert 2.
    const routing tokens = cycle(3, 6, 3);
    const auto steps = steps_of(tokens, order::rounds);
    cache_model model({6, 3, 1, true, 16});
    library_policy llru("llru", model);
    for (uint32_t i = 0; i < 16; ++i)
        model.run(llru, steps[i]);  // 3 tokens up to layer 4 (index 3)
    const moorage_room room{sizeof(room), 0, 0, 3, 16, MOORAGE_DEMAND};
    const std::vector<uint32_t> order_of_going = llru.victims(room, {});
    // R = 2: token 1 up to layer 4, current layer first; R = 1: token 1 in layers 6, 5, token 2 in
    // layers 4 .. 1, by distance; then R = 0 likewise.
    const auto page = [](uint32_t layer, uint32_t expert) { return layer * 3 + expert; };
    CHECK(order_of_going ==
          std::vector<uint32_t>{page(3, 0), page(2, 0), page(1, 0), page(0, 0),  // token 1, R = 2
                                page(3, 1), page(2, 1), page(1, 1), page(0, 1),  // token 2, R = 1
                                page(5, 0), page(4, 0),                          // token 1, R = 1
                                page(3, 2), page(2, 2), page(1, 2), page(0, 2),  // token 3, R = 0
                                page(5, 1), page(4, 1)});                        // token 2, R = 0
}

TEST_CASE("bounds of every policy") {
    std::mt19937_64 generator(11);
    for (uint32_t trial = 0; trial < 30; ++trial) {
        const uint32_t layers = 1 + trial % 4, experts = 3 + trial % 4, top_k = 1 + trial % 3;
        const routing tokens = random_routing(generator, 25, layers, experts, top_k, 0.6);
        const uint64_t distinct = distinct_pages(tokens, experts);
        for (const order requests : {order::rounds, order::token, order::serial})
            for (uint32_t slots = top_k; slots <= layers * experts; slots += 2)
                for (const variant &tested : everyone) {
                    const cache_shape shape{layers, experts, top_k, true, slots};
                    const replayed run =
                        replay_library(tested.name, shape, tokens, requests, tested.params);
                    CAPTURE(std::string(tested.name));
                    CHECK(run.results.size() == 25u * layers * top_k);
                    CHECK(run.misses >= distinct);
                    CHECK(run.misses >= misses_of("belady", shape, tokens, requests));
                    if (slots >= distinct) CHECK(run.misses == distinct);
                }
    }
}

TEST_CASE("stack algorithms: misses never rise with the capacity") {
    std::mt19937_64 generator(12);
    const std::vector<variant> stack = {{"lru", {}},
                                        {"lfu", {{"half_life", "0"}}},
                                        {"llru", {}},
                                        {"llru", {{"distance", "literal"}}},
                                        {"belady", {}}};
    for (uint32_t trial = 0; trial < 40; ++trial) {
        const uint32_t layers = 2 + trial % 3, experts = 3 + trial % 3, top_k = 1 + trial % 2;
        const routing tokens = random_routing(generator, 40, layers, experts, top_k, 0.5);
        for (const order requests : {order::rounds, order::token})
            for (const variant &tested : stack) {
                uint64_t previous = UINT64_MAX;
                const uint32_t least = requests == order::token ? top_k : 1;
                for (uint32_t slots = least; slots <= layers * experts; ++slots) {
                    const cache_shape shape{layers, experts, top_k, true, slots};
                    const uint64_t misses =
                        misses_of(tested.name, shape, tokens, requests, tested.params);
                    CAPTURE(std::string(tested.name));
                    CHECK(misses <= previous);
                    previous = misses;
                }
            }
    }
}

TEST_CASE("where LLRU is LRU") {
    std::mt19937_64 generator(13);
    for (uint32_t trial = 0; trial < 60; ++trial) {
        const uint32_t layers = 2 + trial % 4, experts = 4 + trial % 3, top_k = 1 + trial % 3;
        const routing tokens = random_routing(generator, 30, layers, experts, top_k, 0.4);
        const routing single = random_routing(generator, 60, 1, experts, top_k, 0.4);
        for (const order requests : {order::rounds, order::token, order::serial}) {
            const cache_shape one_layer{1, experts, top_k, true, 1 + trial % experts};
            const cache_shape divided{layers, experts, top_k, false, layers + trial % (layers * 2)};
            for (const parameters &params : {parameters{}, parameters{{"distance", "literal"}}}) {
                CHECK(replay_library("llru", one_layer, single, requests, params).results ==
                      replay_library("lru", one_layer, single, requests).results);
                CHECK(replay_library("llru", divided, tokens, requests, params).results ==
                      replay_library("lru", divided, tokens, requests).results);
            }
        }
        // The literal formula is LRU for two layers and for one slot more than layers.
        const routing pair = random_routing(generator, 40, 2, experts, 1, 0.4);
        const parameters literal{{"distance", "literal"}};
        for (uint32_t slots = 1; slots <= 2 * experts; ++slots)
            CHECK(replay_library("llru", {2, experts, 1, true, slots}, pair, order::rounds, literal)
                      .results ==
                  replay_library("lru", {2, experts, 1, true, slots}, pair, order::rounds).results);
        const cache_shape one_more{layers, experts, top_k, true, layers + 1};
        CHECK(replay_library("llru", one_more, tokens, order::rounds, literal).results ==
              replay_library("lru", one_more, tokens, order::rounds).results);
        // In token mode with exactly k slots per layer all three are the same cache.
        const cache_shape shared{layers, experts, top_k, true, layers * top_k};
        const cache_shape per_layer{layers, experts, top_k, false, layers * top_k};
        const uint64_t lru = misses_of("lru", shared, tokens, order::token);
        CHECK(misses_of("llru", shared, tokens, order::token) == lru);
        CHECK(misses_of("lru", per_layer, tokens, order::token) == lru);
    }
}

TEST_CASE("tiny caches in sequence mode") {
    std::mt19937_64 generator(14);
    for (uint32_t trial = 0; trial < 20; ++trial) {
        const uint32_t layers = 2 + trial % 4, experts = 4, top_k = 1 + trial % 2;
        const routing tokens = random_routing(generator, 30, layers, experts, top_k, 1);
        const cache_shape single_slot{layers, experts, top_k, true, 1};
        const uint64_t misses = misses_of("belady", single_slot, tokens, order::rounds);
        for (const variant &tested : everyone)
            CHECK(misses_of(tested.name, single_slot, tokens, order::rounds, tested.params) ==
                  misses);
        for (uint32_t slots = 1; slots < layers; ++slots)
            CHECK(misses_of("lru", {layers, experts, top_k, true, slots}, tokens, order::rounds) ==
                  30u * layers * top_k);
    }
}

TEST_CASE("theorem 3.3: a cycle over one page more than there are slots") {
    for (const auto &[layers, experts] : {std::pair{2u, 3u}, {3u, 2u}, {6u, 2u}, {4u, 4u}}) {
        const uint64_t slots = layers * experts - 1, requests = 20ull * layers * experts;
        const routing tokens = cycle(20 * experts, layers, experts);
        const cache_shape shape{layers, experts, 1, true, static_cast<uint32_t>(slots)};
        CHECK(misses_of("lru", shape, tokens, order::rounds) == requests);
        CHECK(misses_of("belady", shape, tokens, order::rounds) ==
              slots + 1 + (requests - slots - 1) / slots);
    }
}

TEST_CASE("theorem 3.1: divided caches are unboundedly worse") {
    // The last layer goes through all its experts, the others stay with one: n + L - 1 pages.
    constexpr uint32_t layers = 4, experts = 6, pages = experts + layers - 1;
    for (const uint32_t length : {60u, 240u}) {
        routing tokens = cycle(length, layers, experts);
        for (auto &token : tokens)
            for (uint32_t layer = 0; layer + 1 < layers; ++layer) token[layer] = {0};
        for (const char *name : {"belady", "lru", "llru"})
            CHECK(misses_of(name, {layers, experts, 1, true, pages}, tokens, order::rounds) ==
                  pages);
        for (const char *name : {"lru", "fifo", "llru"})
            CHECK(misses_of(name, {layers, experts, 1, false, pages}, tokens, order::rounds) ==
                  length + layers - 1);
        // Even the offline optimum of a divided cache misses about every other time here.
        CHECK(misses_of("belady", {layers, experts, 1, false, pages}, tokens, order::rounds) >=
              length / experts);
    }
}

TEST_CASE("known miss ratios of independent draws, serial order") {
    // 32 layers of 8 experts, two drawn without replacement with weight 1 / rank; 64, 128, 200
    // slots. With few slots sieve and forgetful lfu freeze on the experts that they happen to hold.
    // Over seeds their ratio lies between .30 and .37 at 128 slots, hence the wider bounds.
    struct known_ratio {
        variant policy;
        double ratio[3], bound[3];
    };
    const std::vector<known_ratio> table = {
        {{"lru", {}}, {.707, .434, .141}, {.01, .01, .01}},
        {{"fifo", {}}, {.750, .467, .185}, {.01, .01, .01}},
        {{"sieve", {}}, {.86, .34, .119}, {.03, .035, .01}},
        {{"lfu", {{"half_life", "0"}, {"forget_on_evict", "1"}}},
         {.86, .34, .121},
         {.03, .035, .01}},
        {{"lfu", {{"half_life", "0"}}}, {.500, .264, .098}, {.01, .01, .01}},
        {{"belady", {}}, {.381, .161, .043}, {.01, .01, .01}},
    };
    std::mt19937_64 generator(15);
    constexpr uint32_t length = 6000;
    const routing tokens = random_routing(generator, length, 32, 8, 2, 1);
    const auto steps = steps_of(tokens, order::serial);
    for (const known_ratio &row : table)
        for (uint32_t i = 0; i < 3; ++i) {
            constexpr uint32_t slots[] = {64, 128, 200};
            cache_model model({32, 8, 2, true, slots[i]});
            library_policy policy(row.policy.name, model, row.policy.params, &steps);
            uint64_t misses = 0;
            std::vector<bool> held(256);
            const outcomes results = policy.replay(tokens, order::serial);
            for (uint32_t index = 0; const request_step &step : steps) {
                const uint32_t page = step.layer * 8 + step.experts[0], victim = results[index++];
                misses += !held[page];
                if (victim != MOORAGE_REPLAY_KEPT) held[victim] = false;
                held[page] = true;
            }
            CAPTURE(std::string(row.policy.name));
            CAPTURE(slots[i]);
            CHECK(std::abs(static_cast<double>(misses) / (length * 64.0) - row.ratio[i]) <
                  row.bound[i]);
        }
}

}  // namespace cache_policies_test

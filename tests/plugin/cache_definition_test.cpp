// Goal: every deterministic cache policy evicts exactly by its definition. Method: the library and
// the definition written out over vectors (definitions.h) run over the same random small traces, in
// all three orders, shared and per layer, from fewer slots than a step needs to nearly all pages.
// The outcome of every request must agree. If the definition covers them, prefetch loads and budget
// changes come in between.
#include <doctest/doctest.h>

#include "definitions.h"

namespace cache_definition_test {

using namespace moorage::test;

namespace {

using maker = std::function<std::unique_ptr<policy_model>(const cache_model &,
                                                          const std::vector<request_step> &)>;

struct contender {
    std::string name;
    parameters params;
    maker definition;
    bool takes_events = true;  // the definition covers prefetches and budgets
};

template <class Definition>
maker by_shape() {
    return [](const cache_model &model, const auto &) {
        return std::make_unique<Definition>(model.shape);
    };
}
template <class Definition>
maker by_model() {
    return
        [](const cache_model &model, const auto &) { return std::make_unique<Definition>(model); };
}
maker lfu_by(double half_life, bool forget) {
    return [=](const cache_model &model, const auto &) {
        return std::make_unique<lfu_definition>(model, half_life, forget);
    };
}
maker llru_by(bool literal) {
    return [=](const cache_model &model, const auto &) {
        return std::make_unique<llru_definition>(model.shape, literal);
    };
}
maker belady_by(uint64_t lookahead) {
    return [=](const cache_model &model, const auto &steps) {
        return std::make_unique<belady_definition>(model.shape, steps, lookahead);
    };
}

std::vector<contender> contenders() {
    return {
        {"lru", {}, by_shape<lru_definition>()},
        {"lru",
         {{"stamp", "best_last"}},
         [](const cache_model &model, const auto &) {
             return std::make_unique<lru_definition>(model.shape, true);
         }},
        {"fifo", {}, by_shape<fifo_definition>()},
        {"lfu", {}, lfu_by(16, false)},
        {"lfu", {{"half_life", "0"}}, lfu_by(0, false)},
        {"lfu", {{"half_life", "0"}, {"forget_on_evict", "1"}}, lfu_by(0, true)},
        {"lfu", {{"half_life", "1"}}, lfu_by(1, false)},
        {"lfu", {{"half_life", "3.5"}}, lfu_by(3.5, false)},
        {"lfu", {{"half_life", "5"}, {"forget_on_evict", "1"}}, lfu_by(5, true)},
        {"llru", {}, llru_by(false)},
        {"llru", {{"distance", "literal"}}, llru_by(true)},
        {"sieve", {}, by_model<sieve_definition>()},
        {"clock", {}, by_model<clock_definition>(), false},
        {"belady", {}, belady_by(0)},
        {"belady", {{"lookahead", "1"}}, belady_by(1)},
        {"belady", {{"lookahead", "4"}}, belady_by(4)},
    };
}

// A prefetch of one absent page or another size for one pool, the same on both sides.
void disturb(std::mt19937_64 &generator, policy_model &left, cache_model &a, policy_model &right,
             cache_model &b) {
    const uint32_t page = static_cast<uint32_t>(generator() % a.shape.pages());
    const uint32_t layer = page / a.shape.experts;
    if (generator() % 2) {
        if (a.state[page] != 0) return;
        const outcomes results = a.load(left, {page}, layer, MOORAGE_PREFETCH);
        REQUIRE(results == b.load(right, {page}, layer, MOORAGE_PREFETCH));
    } else {
        const uint32_t pool = a.pool_of(layer);
        const uint32_t count = 1 + static_cast<uint32_t>(generator() % (a.slots[pool] + 2));
        const outcomes results = a.resize(left, pool, count);
        REQUIRE(results == b.resize(right, pool, count));
    }
}

void compare(const contender &tested, uint64_t seed, bool events) {
    std::mt19937_64 generator(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(4), experts = 2 + below(5),
                   top_k = 1 + below(std::min(3u, experts));
    const auto requests = static_cast<order>(below(3));
    const bool shared = below(3) != 0;
    const cache_shape shape{layers, experts, top_k, shared,
                            1 + below(layers * experts) + (shared ? 0 : layers - 1)};
    const double skew = below(3) * 0.5;
    const routing tokens = random_routing(generator, 8 + below(28), layers, experts, top_k, skew);
    const auto steps = steps_of(tokens, requests);
    CAPTURE(tested.name);
    CAPTURE(seed);
    CAPTURE(shape.slots);
    CAPTURE(static_cast<int>(requests));

    cache_model of_library(shape), of_definition(shape);
    library_policy library(tested.name, of_library, tested.params, &steps);
    const auto definition = tested.definition(of_definition, steps);
    for (const request_step &step : steps) {
        CAPTURE(step.index);
        REQUIRE(of_library.run(library, step) == of_definition.run(*definition, step));
        if (events && generator() % 4 == 0)
            disturb(generator, library, of_library, *definition, of_definition);
    }
    REQUIRE(of_library.misses == of_definition.misses);
    REQUIRE(of_library.state == of_definition.state);
}

}  // namespace

TEST_CASE("every request ends as the definition says") {
    for (const contender &tested : contenders())
        for (uint64_t seed = 0; seed < 300; ++seed) compare(tested, seed, false);
}

TEST_CASE("prefetches and budgets between steps follow the definition too") {
    for (const contender &tested : contenders())
        if (tested.takes_events)
            for (uint64_t seed = 1000; seed < 1200; ++seed) compare(tested, seed, true);
}

TEST_CASE("a decayed count keeps its order over thousands of half-lives") {
    // 1200 tokens are 2000 half-lives: a weight that was kept as it is would leave a double's
    // range.
    std::mt19937_64 generator(7);
    const routing tokens = random_routing(generator, 1200, 2, 5, 1, 0.4);
    const auto steps = steps_of(tokens, order::rounds);
    cache_model of_library({2, 5, 1, true, 4}), of_definition({2, 5, 1, true, 4});
    library_policy library("lfu", of_library, {{"half_life", "0.6"}});
    lfu_definition definition(of_definition, 0.6, false);
    for (const request_step &step : steps) {
        CAPTURE(step.index);
        REQUIRE(of_library.run(library, step) == of_definition.run(definition, step));
    }
    // One request per token and a short half-life: no history outweighs a later request.
    const cache_shape one_layer{1, 6, 1, true, 3};
    const routing single = random_routing(generator, 3000, 1, 6, 1, 0.7);
    CHECK(replay_library("lfu", one_layer, single, order::rounds, {{"half_life", "0.5"}}).results ==
          replay_library("lru", one_layer, single, order::rounds).results);
}

}  // namespace cache_definition_test

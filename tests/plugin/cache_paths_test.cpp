// Goal: all ways into a policy give the same results, and no action of a host between steps loses
// or doubles a page. Method: compare the fast replay path with single steps, outcome by outcome,
// for every policy. Compare reset with a new instance. Run long random sequences of steps,
// prefetches, budgets, arrivals, buffered pages and evictions that the policy did not propose.
// After them every page in a slot must still be found as a victim.
#include <doctest/doctest.h>

#include "harness.h"

namespace cache_paths_test {

using namespace moorage::test;

namespace {

struct variant {
    const char *name;
    parameters params;
};
const std::vector<variant> everyone = {
    {"lru", {}},
    {"lru", {{"stamp", "best_last"}}},
    {"fifo", {}},
    {"random", {}},
    {"marking", {}},
    {"sieve", {}},
    {"clock", {}},
    {"llru", {}},
    {"llru", {{"distance", "literal"}}},
    {"lfu", {}},
    {"lfu", {{"forget_on_evict", "1"}}},
    {"lfu", {{"half_life", "0"}}},
    {"lfu", {{"half_life", "2.5"}}},
    {"ema", {}},
    {"lin", {}},
    {"echo", {}},
    {"tide", {}},
    {"echo", {{"history", "16"}, {"matches", "3"}, {"learning_rate", "0.01"}}},
    {"belady", {}},
    {"belady", {{"lookahead", "2"}}},
};

struct scene {
    cache_shape shape;
    order requests;
    routing tokens;
    std::vector<request_step> steps;
};

scene random_scene(std::mt19937_64 &generator, uint32_t tokens) {
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(5), experts = 2 + below(7),
                   top_k = 1 + below(std::min(4u, experts));
    scene result{{layers, experts, top_k, below(2) == 0, 1 + below(layers * experts)},
                 static_cast<order>(below(3)),
                 random_routing(generator, tokens, layers, experts, top_k, 0.6),
                 {}};
    result.steps = steps_of(result.tokens, result.requests);
    return result;
}

// The future of a page that no step requests is asked for too; steps never run out here.
void disturb(std::mt19937_64 &generator, policy_model &policy, cache_model &model) {
    const auto page = static_cast<uint32_t>(generator() % model.shape.pages());
    const uint32_t layer = page / model.shape.experts, pool = model.pool_of(layer);
    uint32_t &state = model.state[page];
    switch (generator() % 6) {
        case 0:  // prefetch, still under way
            if (state == 0) {
                const outcomes results = model.load(policy, {page}, layer, MOORAGE_PREFETCH);
                if (results[0] != MOORAGE_REPLAY_BYPASS)
                    state = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
            }
            break;
        case 1:  // its bytes are there
            if (state & MOORAGE_STATE_IN_FLIGHT) state = MOORAGE_WHOLE;
            break;
        case 2:
            model.resize(policy, pool,
                         static_cast<uint32_t>(generator() % (model.shape.experts + 2)));
            break;
        case 3:  // the host evicts any page
            if (model.is_in_slot(page)) {
                model.remove_page(page);
                --model.used[pool];
                policy.evict(page, MOORAGE_DEMAND);
            }
            break;
        case 4:  // into the transfer buffer
            if (state == 0) state = MOORAGE_WHOLE | MOORAGE_STATE_BUFFERED;
            break;
        case 5:  // out of the buffer: into a slot or gone
            if (state & MOORAGE_STATE_BUFFERED) {
                state = 0;
                if (generator() % 2) model.load(policy, {page}, layer, MOORAGE_PREFETCH);
            }
            break;
    }
}

}  // namespace

TEST_CASE("the fast replay path and single steps agree on every request") {
    for (const variant &tested : everyone)
        for (uint64_t seed = 0; seed < 120; ++seed) {
            std::mt19937_64 generator(seed);
            const scene setup = random_scene(generator, 30);
            CAPTURE(std::string(tested.name));
            CAPTURE(seed);
            cache_model slow(setup.shape), fast(setup.shape);
            library_policy stepped(tested.name, slow, tested.params, &setup.steps);
            library_policy replayed_at_once(tested.name, fast, tested.params, &setup.steps);
            const auto expected = replay_stepwise(stepped, slow, setup.steps);
            // In two parts, so that the second continues the first.
            const size_t half = seed % 30;
            const routing first(setup.tokens.begin(), setup.tokens.begin() + half);
            const routing second(setup.tokens.begin() + half, setup.tokens.end());
            outcomes results = replayed_at_once.replay(first, setup.requests);
            const outcomes rest = replayed_at_once.replay(second, setup.requests, half);
            results.insert(results.end(), rest.begin(), rest.end());
            REQUIRE(results == expected.results);
            REQUIRE(fast.state == slow.state);
            REQUIRE(fast.used == slow.used);
            REQUIRE(stepped.draws_taken == replayed_at_once.draws_taken);
        }
}

TEST_CASE("the fast path goes on from whatever single steps left behind") {
    // Whole events in a cache that may be too small for them, with all possible actions of a host
    // between them, then requests one by one. The optimum is left out, because it needs one fixed
    // future.
    for (const variant &tested : everyone)
        for (uint64_t seed = 0; seed < 150 && std::string_view(tested.name) != "belady"; ++seed) {
            std::mt19937_64 generator(seed);
            scene setup = random_scene(generator, 30);
            if (setup.requests == order::token) setup.requests = order::serial;
            setup.steps = steps_of(setup.tokens, setup.requests);
            CAPTURE(std::string(tested.name));
            CAPTURE(seed);
            cache_model slow(setup.shape), fast(setup.shape);
            library_policy stepped(tested.name, slow, tested.params),
                at_once(tested.name, fast, tested.params);
            std::mt19937_64 left(seed), right(seed);
            for (const request_step &step : steps_of(setup.tokens, order::token)) {
                if (step.token == 10) break;
                REQUIRE(slow.run(stepped, step) == fast.run(at_once, step));
                disturb(left, stepped, slow);
                disturb(right, at_once, fast);
                REQUIRE(slow.state == fast.state);
            }
            // A fast replay is for caches that hold no more than they may.
            for (uint32_t pool = 0; pool < setup.shape.pools(); ++pool) {
                const uint32_t slots = std::max(1u, slow.slots[pool]);
                REQUIRE(slow.resize(stepped, pool, slots) == fast.resize(at_once, pool, slots));
            }
            outcomes expected;
            for (const request_step &step : setup.steps) {
                if (step.token < 10) continue;
                const outcomes results = slow.run(stepped, step);
                expected.insert(expected.end(), results.begin(), results.end());
            }
            const routing rest(setup.tokens.begin() + 10, setup.tokens.end());
            REQUIRE(at_once.replay(rest, setup.requests, 10) == expected);
            REQUIRE(slow.state == fast.state);
        }
}

TEST_CASE("after reset an instance is as new") {
    for (const variant &tested : everyone)
        for (uint64_t seed = 0; seed < 40; ++seed) {
            std::mt19937_64 generator(seed);
            const scene setup = random_scene(generator, 20);
            cache_model model(setup.shape);
            library_policy policy(tested.name, model, tested.params, &setup.steps);
            const auto first = replay_stepwise(policy, model, setup.steps);
            model.clear();
            policy.reset();
            CAPTURE(std::string(tested.name));
            CHECK(replay_stepwise(policy, model, setup.steps).results == first.results);
        }
}

TEST_CASE("whatever happens between steps, victims stay right and no page is lost") {
    for (const variant &tested : everyone)
        for (uint64_t seed = 0; seed < 60; ++seed) {
            std::mt19937_64 generator(seed);
            const scene setup = random_scene(generator, 60);
            CAPTURE(std::string(tested.name));
            CAPTURE(seed);
            cache_model model(setup.shape);
            library_policy policy(tested.name, model, tested.params, &setup.steps);
            for (const request_step &step : setup.steps) {
                REQUIRE_NOTHROW(model.run(policy, step));
                for (uint64_t events = generator() % 3; events > 0; --events)
                    REQUIRE_NOTHROW(disturb(generator, policy, model));
            }
            for (uint32_t pool = 0; pool < setup.shape.pools(); ++pool) {
                REQUIRE_NOTHROW(model.resize(policy, pool, 0));
                CHECK(model.used[pool] == 0);
                CHECK(model.candidates(pool).empty());
            }
        }
}

}  // namespace cache_paths_test

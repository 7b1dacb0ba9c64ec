// Goal: belady is the offline optimum. Method: on tiny traces, find the least number of misses by a
// trial of every choice of victims (depth-first with memory). belady must reach exactly that: one
// by one, in rounds, and in whole events as long as an event fits into the cache; shared and per
// layer.
#include <doctest/doctest.h>

#include <bit>

#include "harness.h"

namespace cache_belady_test {

using namespace moorage::test;

namespace {

// Least misses from a step on, for given resident pages; pages are bits.
class search {
public:
    search(const cache_shape &shape, const std::vector<request_step> &steps)
        : shape_(shape), steps_(steps) {
        for (uint32_t pool = 0; pool < shape.pools(); ++pool)
            slots_.push_back(shape.slots / shape.pools() +
                             (pool < shape.slots % shape.pools() ? 1 : 0));
    }

    uint32_t fewest_misses(size_t step_index = 0, uint32_t resident = 0) {
        if (step_index == steps_.size()) return 0;
        const auto [found, is_new] = known_.try_emplace({step_index, resident}, 0);
        if (!is_new) return found->second;
        const request_step &step = steps_[step_index];
        uint32_t wanted = 0;
        for (const uint32_t expert : step.experts)
            wanted |= 1u << (step.layer * shape_.experts + expert);
        const uint32_t pool = shape_.shared ? 0 : step.layer;
        const uint32_t of_pool =
            shape_.shared ? ~0u : ((1u << shape_.experts) - 1) << (step.layer * shape_.experts);
        const auto misses = static_cast<uint32_t>(std::popcount(wanted & ~resident));
        const auto held = static_cast<uint32_t>(std::popcount(resident & of_pool));
        const uint32_t going = held + misses > slots_[pool] ? held + misses - slots_[pool] : 0;
        const uint32_t best = misses + try_victims(step_index, resident | wanted,
                                                   resident & of_pool & ~wanted, going);
        known_[{step_index, resident}] = best;
        return best;
    }

private:
    // Tries every set of `going` pages out of `may_go`.
    uint32_t try_victims(size_t step_index, uint32_t resident, uint32_t may_go, uint32_t going) {
        if (going == 0) return fewest_misses(step_index + 1, resident);
        uint32_t best = UINT32_MAX;
        while (static_cast<uint32_t>(std::popcount(may_go)) >= going) {
            const uint32_t page = may_go & -may_go;
            may_go &= ~page;
            best = std::min(best, try_victims(step_index, resident & ~page, may_go, going - 1));
        }
        return best;
    }
    const cache_shape &shape_;
    const std::vector<request_step> &steps_;
    std::vector<uint32_t> slots_;
    std::map<std::pair<size_t, uint32_t>, uint32_t> known_;
};

}  // namespace

TEST_CASE("belady misses as rarely as any choice of victims can") {
    uint32_t compared = 0;
    for (uint64_t seed = 0; seed < 250; ++seed) {
        std::mt19937_64 generator(seed);
        const auto below = [&](uint32_t bound) {
            return static_cast<uint32_t>(generator() % bound);
        };
        const uint32_t layers = 1 + below(3), experts = 3 + below(2), top_k = 1 + below(2);
        const double skew = 0.5 * below(3);
        const routing tokens =
            random_routing(generator, 5 + below(5), layers, experts, top_k, skew);
        for (const order requests : {order::rounds, order::token, order::serial})
            for (const bool shared : {true, false}) {
                const uint32_t least =
                    (requests == order::token ? top_k : 1) * (shared ? 1 : layers);
                const uint32_t most = std::min(layers * experts, least + 4);
                const cache_shape shape{layers, experts, top_k, shared,
                                        least + below(most - least + 1)};
                const auto steps = steps_of(tokens, requests);
                CAPTURE(seed);
                CHECK(misses_of("belady", shape, tokens, requests) ==
                      search(shape, steps).fewest_misses());
                ++compared;
            }
    }
    CHECK(compared == 1500);
}

TEST_CASE(
    "the more belady sees the fewer misses, on average; nothing seen is lru, all seen the "
    "optimum") {
    std::mt19937_64 generator(3);
    std::map<int, uint64_t> misses;
    for (uint32_t trial = 0; trial < 20; ++trial) {
        const routing tokens = random_routing(generator, 60, 4, 6, 2, 0.7);
        const cache_shape shape{4, 6, 2, true, 12};
        for (const int lookahead : {1, 2, 4, 8, 16})
            misses[lookahead] += misses_of("belady", shape, tokens, order::token,
                                           {{"lookahead", std::to_string(lookahead)}});
        misses[0] += misses_of("lru", shape, tokens, order::token);
        misses[100] += misses_of("belady", shape, tokens, order::token);
        CHECK(misses_of("belady", shape, tokens, order::token, {{"lookahead", "60"}}) ==
              misses_of("belady", shape, tokens, order::token));
    }
    for (auto entry = misses.begin(); std::next(entry) != misses.end(); ++entry)
        CHECK(entry->second >= std::next(entry)->second);
    CHECK(misses[0] > misses[100]);
}

TEST_CASE("belady is not created where there is no future") {
    cache_model model({2, 4, 1, true, 3});
    CHECK_THROWS_WITH(
        library_policy("belady", model),
        "belady: belady: the host offers no future of the trace; use it in a replay or an "
        "emulation");
}

}  // namespace cache_belady_test

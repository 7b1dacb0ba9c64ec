// Goal: echo, lin and ema evict by their definition, equally with every instruction set. Method:
// the library and the definition in double (echo_definition.h) see the same steps. Every victim of
// the library must have the longest wait by the definition, up to a margin for single precision.
// Nearly always it must be the definition's own victim. The vector forms are compared with each
// other outcome by outcome, without a margin.
#include <doctest/doctest.h>

#include "echo_definition.h"

namespace echo_test {

using namespace moorage::test;

namespace {

// Random routing in which stretches of earlier tokens come again, with a few experts exchanged.
routing repeating_routing(std::mt19937_64 &generator, uint32_t tokens, uint32_t layers,
                          uint32_t experts, uint32_t top_k) {
    routing result = random_routing(generator, tokens, layers, experts, top_k, 0.7);
    for (uint32_t token = 10; token < tokens;) {
        const auto length = static_cast<uint32_t>(4 + generator() % 12);
        const auto source = static_cast<uint32_t>(generator() % token);
        const bool copies = generator() % 4 != 0;
        for (uint32_t i = 0; i < length && token < tokens; ++i, ++token)
            for (uint32_t layer = 0; copies && source + i < token && layer < layers; ++layer)
                if (generator() % 5 != 0) result[token][layer] = result[source + i][layer];
    }
    return result;
}

// Hands on the library's advice and holds it against the definition.
class judged final : public policy_model {
public:
    judged(library_policy &library, echo_definition &definition, double margin)
        : library_(library), definition_(definition), margin_(margin) {}
    void observe(const request_step &step) override {
        library_.observe(step);
        definition_.observe(step.layer, step.experts);
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        const auto going = library_.victims(room, candidates);
        std::set<uint32_t> left(candidates.begin(), candidates.end());
        for (const uint32_t page : going) {
            double longest = 0;
            for (const uint32_t candidate : left)
                longest = std::max(longest, definition_.wait(candidate));
            const double wait = definition_.wait(page);
            worst = std::max(worst, 1 - wait / longest);
            exact += wait == longest;
            ++total;
            REQUIRE(wait >= longest * (1 - margin_));
            left.erase(page);
        }
        return going;
    }
    void load(uint32_t page, int32_t cause) override { library_.load(page, cause); }
    void evict(uint32_t page, int32_t cause) override { library_.evict(page, cause); }

    uint64_t exact = 0, total = 0;
    double worst = 0;

private:
    library_policy &library_;
    echo_definition &definition_;
    const double margin_;
};

struct variant {
    std::string name;
    parameters params;
    echo_options options;
};
std::vector<variant> variants() {
    const echo_options ema{.matches = false}, lin{.matches = false, .transitions = true};
    echo_options eager{.window = 40, .best = 3, .carry = 0.25, .learning_rate = 0.003};
    eager.discount = 0.5;
    eager.position = 1;
    return {
        {"ema", {}, ema},
        {"lin", {}, lin},
        {"echo", {}, {}},
        {"echo",
         {{"history", "40"},
          {"matches", "3"},
          {"carry", "0.25"},
          {"learning_rate", "0.003"},
          {"discount", "0.5"},
          {"position", "1"}},
         eager},
    };
}

cache_shape random_shape(std::mt19937_64 &generator, uint32_t layers_max, uint32_t experts_max) {
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(layers_max), experts = 4 + below(experts_max - 3);
    const uint32_t top_k = 1 + below(std::min(4u, experts / 2)), pages = layers * experts;
    const bool shared = below(4) != 0;
    const uint32_t least = top_k * (shared ? 1 : layers);
    return {layers, experts, top_k, shared, least + below(pages - least)};
}

}  // namespace

TEST_CASE("victims have the longest wait by the definition") {
    for (const variant &tested : variants()) {
        uint64_t exact = 0, total = 0;
        for (uint64_t seed = 0; seed < 40; ++seed) {
            std::mt19937_64 generator(seed);
            // Every tenth with more experts than a mask word has bits.
            const cache_shape shape = random_shape(generator, 5, seed % 10 == 0 ? 100 : 30);
            const routing tokens =
                repeating_routing(generator, 150, shape.layers, shape.experts, shape.top_k);
            CAPTURE(tested.name);
            CAPTURE(seed);
            cache_model model(shape);
            library_policy library(tested.name, model, tested.params);
            echo_definition definition(shape, tested.options);
            judged policy(library, definition, 0.02);
            REQUIRE_NOTHROW(replay_stepwise(policy, model, steps_of(tokens, order::token)));
            exact += policy.exact;
            total += policy.total;
        }
        CAPTURE(tested.name);
        CHECK(total > 5000);
        CHECK(static_cast<double>(exact) > 0.99 * static_cast<double>(total));
        MESSAGE(tested.name << ": " << exact << " of " << total << " exactly the definition's");
    }
}

TEST_CASE("every instruction set decides alike") {
    for (const char *name : {"ema", "lin", "echo"})
        for (uint64_t seed = 0; seed < 60; ++seed) {
            std::mt19937_64 generator(seed);
            const cache_shape shape = random_shape(generator, 6, seed % 4 == 0 ? 200 : 70);
            const auto requests = static_cast<order>(generator() % 3);
            const routing tokens =
                repeating_routing(generator, 120, shape.layers, shape.experts, shape.top_k);
            const parameters eager = {{"learning_rate", "0.01"}};
            const auto replay_with = [&](const char *simd) {
                parameters params = eager;
                params["simd"] = simd;
                return replay_library(name, shape, tokens, requests, params).results;
            };
            const auto plain = replay_with("portable");
            CHECK(replay_library(name, shape, tokens, requests, eager).results == plain);
            for (const char *simd : {"avx2", "avx512"}) {
                CAPTURE(seed);
                CAPTURE(simd);
                try {
                    CHECK(replay_with(simd) == plain);
                } catch (const std::runtime_error &lacking) {
                    REQUIRE(std::string(lacking.what()).find("processor") != std::string::npos);
                }
            }
        }
}

TEST_CASE("a routing that comes again is known before it comes") {
    // 60 tokens at random, then the same 60 again and again. From the third round on echo knows the
    // next ones, and misses little more than the optimum. Rates alone see noise.
    std::mt19937_64 generator(3);
    const cache_shape shape{4, 16, 2, true, 24};
    const routing part = random_routing(generator, 60, 4, 16, 2, 0);
    routing tokens;
    for (int round = 0; round < 20; ++round) tokens.insert(tokens.end(), part.begin(), part.end());
    const auto misses = [&](const char *name) {
        return static_cast<double>(misses_of(name, shape, tokens, order::token));
    };
    const double optimum = misses("belady"), echo = misses("echo"), ema = misses("ema");
    CHECK(echo < 1.25 * optimum);
    CHECK(echo < 0.75 * ema);
    MESSAGE("optimum " << optimum << ", echo " << echo << ", ema " << ema << ", lru "
                       << misses("lru"));
}

TEST_CASE("a processor or a text that is not there is refused") {
    cache_model model({2, 4, 1, true, 4});
    CHECK_THROWS(library_policy("echo", model, {{"simd", "mmx"}}));
}

}  // namespace echo_test

// Goal: llama_cpp_cache evicts the least recently used of the least frequent class. Method: a
// definition that keeps every request and halves its sum anew for each victim runs beside the
// library over random traces. With one class it must equal LRU with a step's misses in order of
// number. Large batches by hand.
#include <doctest/doctest.h>

#include "any_policy.h"
#include "definitions.h"

namespace cache_llama_cpp_test {

using namespace moorage::test;

namespace {

class class_definition final : public policy_model {
public:
    class_definition(const cache_model &model, uint32_t classes, uint64_t half_life)
        : model_(model),
          classes_(classes),
          half_life_(half_life),
          requests_(model.shape.pages()),
          last_(model.shape.pages()) {}
    void observe(const request_step &step) override {
        token_ = step.token;
        std::vector<uint32_t> hits, misses;
        for (const uint32_t expert : step.experts) {
            const uint32_t page = step.layer * model_.shape.experts + expert;
            (model_.is_in_slot(page) ? hits : misses).push_back(page);
            requests_[page].push_back(step.token);
        }
        std::sort(misses.begin(), misses.end());
        for (const uint32_t page : hits) last_[page] = ++now_;
        for (const uint32_t page : misses) last_[page] = ++now_;
    }
    void load(uint32_t page, int32_t cause) override {
        if (cause != MOORAGE_DEMAND) last_[page] = ++now_;
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        return first_of(candidates, room.count, [&](uint32_t a, uint32_t b) {
            return level(a) != level(b) ? level(a) < level(b) : last_[a] < last_[b];
        });
    }

private:
    // Requests in periods of a half-life: at the end of each the sum of 256ths is halved.
    uint32_t level(uint32_t page) const {
        uint64_t sum = 0;
        for (uint64_t period = 0; period <= token_ / half_life_; ++period) {
            if (period > 0) sum /= 2;
            for (const uint64_t token : requests_[page])
                if (token / half_life_ == period) sum += 256;
        }
        uint32_t level = 0;
        while (level + 1 < classes_ && sum >= (uint64_t{256} << level)) ++level;
        return level;
    }
    const cache_model &model_;
    const uint32_t classes_;
    const uint64_t half_life_;
    std::vector<std::vector<uint64_t>> requests_;
    std::vector<uint64_t> last_;
    uint64_t now_ = 0, token_ = 0;
};

void compare(uint64_t seed) {
    std::mt19937_64 generator(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(4), experts = 2 + below(5);
    const uint32_t top_k = 1 + below(std::min(3u, experts));
    const bool shared = below(3) != 0;
    const uint32_t classes = 1 + below(5), half_life = 1 + below(9);
    const cache_shape shape{layers, experts, top_k, shared,
                            1 + below(layers * experts) + (shared ? 0 : layers - 1)};
    const auto requests = static_cast<order>(below(3));
    const double skew = below(3) * 0.5;
    const auto steps =
        steps_of(random_routing(generator, 10 + below(40), layers, experts, top_k, skew), requests);
    CAPTURE(seed);
    cache_model of_library(shape), of_definition(shape);
    library_policy library(
        "llama_cpp_cache", of_library,
        {{"classes", std::to_string(classes)}, {"half_life", std::to_string(half_life)}});
    class_definition definition(of_definition, classes, half_life);
    for (const request_step &step : steps) {
        CAPTURE(step.index);
        REQUIRE(of_library.run(library, step) == of_definition.run(definition, step));
        if (below(4) != 0) continue;
        const uint32_t page = below(shape.pages());
        if (of_library.state[page] != 0) continue;
        REQUIRE(of_library.load(library, {page}, page / experts, MOORAGE_PREFETCH) ==
                of_definition.load(definition, {page}, page / experts, MOORAGE_PREFETCH));
    }
    REQUIRE(of_library.state == of_definition.state);
}

}  // namespace

TEST_CASE("every request ends as the definition says") {
    for (uint64_t seed = 0; seed < 1000; ++seed) compare(seed);
}

TEST_CASE("a frequent expert outlives a recent one, until its count has halved") {
    // One layer, two slots, half-life 8: expert 0 three times, then 1, then 2.
    cache_model model({1, 4, 1, true, 2});
    library_policy library("llama_cpp_cache", model, {{"half_life", "8"}});
    const uint32_t asked[] = {0, 0, 0, 1, 2};
    for (uint64_t i = 0; i < 5; ++i) model.run(library, {i, i, i, 0, {asked[i]}});
    CHECK(model.state ==
          std::vector<uint32_t>{MOORAGE_WHOLE, 0, MOORAGE_WHOLE, 0});  // LRU would have taken 0
    // At token 16 two halvings have passed: 0 and 2 are below one request, 0 is older.
    model.run(library, {16, 16, 16, 0, {3}});
    CHECK(model.state == std::vector<uint32_t>{0, 0, MOORAGE_WHOLE, MOORAGE_WHOLE});
}

TEST_CASE("a batch beyond the limit reads the cache and does not fill it") {
    world test_world(1, 8, 2, true, 4);
    test_world.limits.tokens_max = 3;
    any_policy policy("cache/llama_cpp_cache", test_world, {{"batch_max", "2"}});
    step_data data;
    fill_step(data, test_world, 0, 0, {{0, 1}, {2, 3}, {4, 5}});
    policy.observe(data.step);
    CHECK_FALSE(policy.admit(0));
    fill_step(data, test_world, 1, 0, {{0, 1}, {2, 3}});
    policy.observe(data.step);
    CHECK(policy.admit(0));
}

}  // namespace cache_llama_cpp_test

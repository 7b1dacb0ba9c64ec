// Goal: lcp evicts by Eq. (4) of MoEpic to the last tie, and fills caches with the best experts.
// Method: the hand traces of the readings. Then the equation written out over vectors (counts and
// intervals of all experts, logarithms in long double) beside the library, over random traces in
// all orders, shared and per layer, with prefetches and budgets in between.
#include <doctest/doctest.h>

#include <set>

#include "definitions.h"
#include "policy_host.h"

namespace lcp_test {

using namespace moorage::test;

namespace {

// Eq. (4) as printed. Priorities within 1e-14 are the same: counts and intervals here are small, so
// different ones are further apart.
class lcp_definition final : public policy_model {
public:
    lcp_definition(const cache_shape &shape, double omega, double rho)
        : shape_(shape),
          omega_(omega),
          rho_(rho),
          mu_(shape.pages()),
          nu_(shape.pages()),
          token_(shape.layers, MOORAGE_NEVER) {}
    void observe(const request_step &step) override {
        const bool next = token_[step.layer] != step.token;
        token_[step.layer] = step.token;
        for (uint32_t expert = 0; expert < shape_.experts; ++expert)
            nu_[step.layer * shape_.experts + expert] += next ? 1 : 0;
        for (const uint32_t expert : step.experts) {
            mu_[step.layer * shape_.experts + expert] += 1;
            nu_[step.layer * shape_.experts + expert] = 0;
        }
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        return first_of(candidates, room.count, [&](uint32_t a, uint32_t b) {
            const long double difference = priority(a) - priority(b);
            if (mu_[a] == 0 || mu_[b] == 0) return mu_[a] == 0 && (mu_[b] != 0 || a < b);
            return std::abs(difference) > 1e-14L ? difference < 0 : a < b;
        });
    }

private:
    long double priority(uint32_t page) const {
        return std::log(static_cast<long double>(mu_[page])) +
               static_cast<long double>(nu_[page]) / omega_ * std::log(rho_);
    }
    const cache_shape shape_;
    const long double omega_, rho_;
    std::vector<uint64_t> mu_, nu_;
    std::vector<uint64_t> token_;
};

void disturb(std::mt19937_64 &generator, policy_model &left, cache_model &a, policy_model &right,
             cache_model &b) {
    const uint32_t page = static_cast<uint32_t>(generator() % a.shape.pages());
    const uint32_t layer = page / a.shape.experts;
    if (generator() % 2) {
        if (a.state[page] != 0) return;
        const outcomes results = a.load(left, {page}, layer, MOORAGE_PREFETCH);
        REQUIRE(results == b.load(right, {page}, layer, MOORAGE_PREFETCH));
        return;
    }
    const uint32_t pool = a.pool_of(layer);
    const uint32_t count = 1 + static_cast<uint32_t>(generator() % (a.slots[pool] + 2));
    const outcomes results = a.resize(left, pool, count);
    REQUIRE(results == b.resize(right, pool, count));
}

void compare(uint64_t seed, uint32_t omega, double rho, bool events) {
    std::mt19937_64 generator(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    const uint32_t layers = 1 + below(4), experts = 2 + below(6),
                   top_k = 1 + below(std::min(3u, experts));
    const auto requests = static_cast<order>(below(3));
    const bool shared = below(3) != 0;
    const cache_shape shape{layers, experts, top_k, shared,
                            1 + below(layers * experts) + (shared ? 0 : layers - 1)};
    const double skew = below(3) * 0.5;
    const routing tokens = random_routing(generator, 8 + below(60), layers, experts, top_k, skew);
    CAPTURE(seed);
    CAPTURE(omega);
    CAPTURE(rho);
    cache_model of_library(shape), of_definition(shape);
    library_policy library("lcp", of_library,
                           {{"omega", std::to_string(omega)}, {"rho", std::to_string(rho)}});
    lcp_definition definition(shape, omega, rho);
    for (const request_step &step : steps_of(tokens, requests)) {
        CAPTURE(step.index);
        REQUIRE(of_library.run(library, step) == of_definition.run(definition, step));
        if (events && generator() % 4 == 0)
            disturb(generator, library, of_library, definition, of_definition);
    }
    REQUIRE(of_library.state == of_definition.state);
}

// One layer, one expert a token: the eviction of each request, MOORAGE_REPLAY_KEPT if none.
outcomes single(const std::vector<uint32_t> &experts, uint32_t count, uint32_t slots,
                const parameters &params) {
    routing tokens;
    for (const uint32_t expert : experts) tokens.push_back({{expert}});
    return replay_library("lcp", {1, count, 1, true, slots}, tokens, order::token, params).results;
}

constexpr uint32_t kept = MOORAGE_REPLAY_KEPT;

}  // namespace

TEST_CASE("the hand trace of the readings") {
    const std::vector<uint32_t> requests{0, 0, 0, 1, 2, 1, 2};
    CHECK(single(requests, 3, 2, {{"omega", "2"}}) == outcomes{kept, kept, kept, kept, 1, 0, kept});
    CHECK(single(requests, 3, 2, {{"omega", "1000000000"}}) ==
          outcomes{kept, kept, kept, kept, 1, 2, 1});
}

TEST_CASE("equal priorities of unequal counts are ties, and the smallest id goes") {
    // omega 128, rho 1/4: two uses 64 tokens ago weigh as much as one use just now. Expert 4 keeps
    // the layer's clock going without being a candidate. Its request evicts.
    for (const bool twice_first : {true, false}) {
        const uint32_t twice = twice_first ? 0 : 1, once = 1 - twice;
        for (const int extra_tokens : {-1, 0, 1}) {
            std::vector<uint32_t> requests{twice, twice};
            requests.insert(requests.end(), 63 + extra_tokens, 2);
            requests.push_back(once);  // 64 + more tokens after the last of twice
            requests.push_back(3);
            const outcomes results = single(requests, 4, 3, {});
            const uint32_t gone = extra_tokens < 0 ? once : extra_tokens > 0 ? twice : 0;
            CHECK(results.back() == gone);
        }
    }
    // The same with rho = 3/4, which is no power of two: three times (3, 0) and four times (4,
    // 128).
    for (const bool four_first : {true, false}) {
        const uint32_t four = four_first ? 0 : 1, three = 1 - four;
        for (const int extra_tokens : {-1, 0, 1}) {
            std::vector<uint32_t> requests{four, four, four, four};
            requests.insert(requests.end(), 125 + extra_tokens, 2);
            requests.insert(requests.end(), 3, three);
            requests.push_back(3);
            const outcomes results = single(requests, 4, 3, {{"rho", "0.75"}});
            const uint32_t gone = extra_tokens < 0 ? three : extra_tokens > 0 ? four : 0;
            CHECK(results.back() == gone);
        }
    }
}

TEST_CASE("every request ends as Eq. (4) says") {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        compare(seed, 128, 0.25, false);
        compare(seed + 1000, 4, 0.25, true);
        compare(seed + 2000, 3, 0.5, true);
        compare(seed + 3000, 16, 0.75, true);
    }
}

TEST_CASE("between lru and lfu") {
    std::mt19937_64 generator(5);
    const cache_shape shape{1, 8, 1, true, 4};
    const routing tokens = random_routing(generator, 2000, 1, 8, 1, 0.5);
    // rho^(1 / omega) below 1 / 2000: no count outweighs a later request.
    CHECK(replay_library("lcp", shape, tokens, order::token, {{"omega", "1"}, {"rho", "0.0004"}})
              .results == replay_library("lru", shape, tokens, order::token).results);
    // Hardly any decay: counts decide, and of equal ones the interval.
    CHECK(replay_library("lcp", shape, tokens, order::token, {{"omega", "1000000000"}}).results ==
          replay_library("lfu", shape, tokens, order::token, {{"half_life", "0"}}).results);
}

TEST_CASE("a batch counts as its tokens one after the other") {
    policy_host batched("cache/lcp", {1, 6, 2, 3}), single("cache/lcp", {1, 6, 2, 3});
    std::mt19937_64 generator(3);
    for (int round = 0; round < 50; ++round) {
        std::vector<uint32_t> batch;
        for (int token = 0; token < 4; ++token) {
            const auto first = static_cast<uint32_t>(generator() % 6);
            const std::vector<uint32_t> chosen{first, (first + 1) % 6};
            single.observe(0, chosen);
            batch.insert(batch.end(), chosen.begin(), chosen.end());
        }
        batched.observe(0, batch, {}, 4);
        REQUIRE(batched.fill(0, 6) == single.fill(0, 6));
    }
}

TEST_CASE("fill names the best experts, ties by the smallest id, and draws before any is known") {
    policy_host policy("cache/lcp", {2, 4, 1, 4});
    const auto first = policy.fill(1, 3);
    CHECK(std::set<uint32_t>(first.begin(), first.end()).size() == 3);
    for (const uint32_t page : first) CHECK(page / 4 == 1);
    std::set<std::vector<uint32_t>> seen;
    for (int i = 0; i < 40; ++i) seen.insert(policy.fill(1, 3));
    CHECK(seen.size() > 10);  // of 24 orders

    for (const uint32_t expert : {2u, 3u, 3u}) {
        policy.observe(0, {expert});
        policy.observe(1, {expert});
    }
    CHECK(policy.fill(1, 4) == std::vector<uint32_t>{7, 6, 4, 5});
    policy.state[7] = MOORAGE_SEGMENT(0, 2);  // is there already
    CHECK(policy.fill(1, 2) == std::vector<uint32_t>{6, 4});
    CHECK(policy_host("cache/lcp", {2, 4, 1, 4}, {{"fill", "none"}}).fill(0, 2).empty());

    // Shared: layer 0 has been served once more, so its priorities have decayed by one token more.
    policy_host shared("cache/lcp", {2, 2, 1, 4, true}, {{"omega", "1"}});
    shared.observe(0, {1});
    shared.observe(1, {1});
    shared.observe(0, {0});
    CHECK(shared.fill(0, 4) == std::vector<uint32_t>{0, 3, 1, 2});
}

}  // namespace lcp_test

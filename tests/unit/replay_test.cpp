// replay_test.cpp - goal: replays count by the contract's rules, by both paths, with any number of
// threads, and wrong policies are blamed. Method: a naive lru written from the definition; the
// worked examples and facts of layered paging; both paths compared on random traces; policies that
// misbehave to order, whose faults the host repairs into a known run.
#include "tests/unit/replay_fixture.h"

#include <map>
#include <set>

namespace replay_test {

using namespace moorage;
using namespace moorage::core;
using namespace moorage::test;

namespace {

constexpr order orders[] = {order::rounds, order::token, order::serial};
constexpr sharing sharings[] = {sharing::shared, sharing::per_layer};

// One event: the pages that are asked for together.
using events = std::vector<std::vector<uint32_t>>;

events events_of(const trace &source, order requests) {
    events result;
    const uint32_t layers = source.layers(), top_k = source.top_k();
    for (uint64_t token = 0; token < source.tokens(); ++token) {
        const auto page = [&](uint32_t layer, uint32_t rank) {
            return layer * source.experts() + source.expert(token, layer, rank);
        };
        if (requests == order::rounds)
            for (uint32_t rank = 0; rank < top_k; ++rank)
                for (uint32_t layer = 0; layer < layers; ++layer)
                    result.push_back({page(layer, rank)});
        else
            for (uint32_t layer = 0; layer < layers; ++layer) {
                if (requests == order::token) result.emplace_back();
                for (uint32_t rank = 0; rank < top_k; ++rank) {
                    if (requests == order::token)
                        result.back().push_back(page(layer, rank));
                    else
                        result.push_back({page(layer, rank)});
                }
            }
    }
    return result;
}

struct naive_counts {
    uint64_t misses = 0, bypasses = 0;
    std::vector<uint64_t> layer_misses;
};

// Least recently used, by its definition: time stamps, and a search for the oldest.
naive_counts naive_lru(const trace &source, uint32_t slots, order requests, sharing pools) {
    const uint32_t layers = source.layers(), experts = source.experts();
    naive_counts counts{0, 0, std::vector<uint64_t>(layers, 0)};
    std::vector<std::map<uint32_t, uint64_t>> caches(pools == sharing::shared ? 1 : layers);
    uint64_t now = 0;
    for (const auto &event : events_of(source, requests)) {
        const uint32_t layer = event[0] / experts;
        auto &cache = caches[pools == sharing::shared ? 0 : layer];
        const uint32_t room =
            pools == sharing::shared ? slots : slots / layers + (layer < slots % layers ? 1 : 0);
        std::vector<uint32_t> missing;
        std::map<uint32_t, uint64_t> stamp;
        for (const uint32_t page : event) {
            stamp[page] = ++now;
            if (cache.count(page))
                cache[page] = now;
            else
                missing.push_back(page);
        }
        counts.misses += missing.size();
        counts.layer_misses[layer] += missing.size();
        for (const uint32_t page : missing) {
            if (cache.size() >= room) {
                auto oldest = cache.end();
                for (auto entry = cache.begin(); entry != cache.end(); ++entry)
                    if (!stamp.count(entry->first) &&
                        (oldest == cache.end() || entry->second < oldest->second))
                        oldest = entry;
                if (oldest == cache.end()) {
                    ++counts.bypasses;
                    continue;
                }
                cache.erase(oldest);
            }
            cache[page] = stamp[page];
        }
    }
    return counts;
}

std::vector<std::string> bundled_policies() {
    std::vector<std::string> names;
    for (const policy &policy : policies().policies())
        // Made-up traces have neither weights nor scores.
        if (policy.is("cache") && policy.path.parent_path().parent_path().filename() == "plugins" &&
            (policy.descriptor->needs & ~uint32_t{MOORAGE_NEEDS_FUTURE}) == 0)
            names.emplace_back(policy.name());
    return names;
}

void check_equal(const replay_result &a, const replay_result &b) {
    CHECK(a.requests == b.requests);
    CHECK(a.hits == b.hits);
    CHECK(a.misses == b.misses);
    CHECK(a.bypasses == b.bypasses);
    CHECK(a.layer_misses == b.layer_misses);
}

}  // namespace

TEST_CASE("lru counts what its definition does, in every order, sharing and size, by both paths") {
    for (const shape dimensions :
         {shape{3, 5, 2}, shape{1, 6, 3}, shape{4, 4, 1}, shape{2, 7, 4}}) {
        const trace source = make_trace(random_choices(dimensions, 150, 7 + dimensions.layers));
        for (const order requests : orders) {
            for (const sharing pools : sharings) {
                for (const uint32_t slots :
                     {1u, 2u, 3u, 5u, 8u, 11u, dimensions.layers * dimensions.experts, 60u}) {
                    CAPTURE(name_of(requests));
                    CAPTURE(name_of(pools));
                    CAPTURE(slots);
                    const naive_counts naive = naive_lru(source, slots, requests, pools);
                    for (const bool stepwise : {false, true}) {
                        replay_job job = job_of("lru", slots, requests, pools);
                        job.stepwise = stepwise;
                        const replay_result result = count_replay(source, job);
                        CHECK(result.fast == !stepwise);
                        CHECK(result.requests ==
                              source.tokens() * dimensions.layers * dimensions.top_k);
                        CHECK(result.hits + result.misses == result.requests);
                        CHECK(result.misses == naive.misses);
                        CHECK(result.bypasses == naive.bypasses);
                        CHECK(result.layer_misses == naive.layer_misses);
                        CHECK(result.faults == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("both paths of every bundled policy make the same decisions") {
    const trace small = make_trace(random_choices({3, 6, 2}, 400, 3));
    const trace large = make_trace(random_choices({5, 40, 6}, 300, 4));  // several batches
    REQUIRE(bundled_policies().size() >= 1);
    for (const std::string &name : bundled_policies()) {
        for (const trace *source : {&small, &large}) {
            for (const order requests : orders) {
                for (const sharing pools : sharings) {
                    const uint32_t pages = source->layers() * source->experts();
                    for (const uint32_t slots : {pages / 9, pages / 3, pages - 1}) {
                        CAPTURE(name);
                        CAPTURE(name_of(requests));
                        CAPTURE(name_of(pools));
                        CAPTURE(slots);
                        replay_job job = job_of(name, slots, requests, pools);
                        job.seed = 5;
                        const replay_result fast = count_replay(*source, job);
                        // One that is asked before each load goes step by step.
                        CHECK(fast.fast == (name != "llama_cpp_cache" && name != "static"));
                        job.stepwise = true;
                        check_equal(fast, count_replay(*source, job));
                    }
                }
            }
        }
    }
}

TEST_CASE("facts of paging hold for every bundled policy") {
    const shape dimensions{3, 6, 2};
    const trace source = make_trace(random_choices(dimensions, 300, 11));
    std::set<uint32_t> distinct;
    for (const auto &event : events_of(source, order::serial)) distinct.insert(event[0]);
    for (const std::string &name : bundled_policies()) {
        for (const order requests : orders) {
            CAPTURE(name);
            CAPTURE(name_of(requests));
            for (const uint32_t slots : {2u, 6u, 9u, 14u}) {
                const uint64_t misses = count_replay(source, job_of(name, slots, requests)).misses;
                CHECK(misses >= distinct.size());
                CHECK(misses >= count_replay(source, job_of("belady", slots, requests)).misses);
            }
            const auto page_count = static_cast<uint32_t>(distinct.size());
            CHECK(count_replay(source, job_of(name, page_count, requests)).misses ==
                  distinct.size());
            if (requests == order::token) continue;
            // One slot leaves nothing to decide.
            CHECK(count_replay(source, job_of(name, 1, requests)).misses ==
                  count_replay(source, job_of("lru", 1, requests)).misses);
        }
    }
}

TEST_CASE("the worked examples") {
    SUBCASE("five tokens in rounds: lru 15, llru 9, optimum 7") {
        std::vector<uint16_t> choices;
        for (const uint16_t expert : {0, 1, 0, 1, 0}) choices.insert(choices.end(), 3, expert);
        const trace source = make_trace(trace_of_choices({3, 2, 1}, choices));
        CHECK(count_replay(source, job_of("lru", 5, order::rounds)).misses == 15);
        CHECK(count_replay(source, job_of("llru", 5, order::rounds)).misses == 9);
        CHECK(count_replay(source, job_of("belady", 5, order::rounds)).misses == 7);
    }
    SUBCASE("token mode: 2 2 1 2 misses, four of them in layer 1") {
        const trace source = make_trace(trace_of_choices({2, 3, 2}, {0, 1, 0, 1, 1, 2, 0, 2}));
        for (const char *name : {"lru", "llru"}) {
            const replay_result result = count_replay(source, job_of(name, 3));
            CHECK(result.misses == 7);
            CHECK(result.layer_misses == std::vector<uint64_t>{3, 4});
        }
    }
    SUBCASE("a cycle over one page more than fits (Theorem 3.3)") {
        const uint64_t requests = 50, slots = 4;
        std::vector<uint16_t> choices;
        for (uint64_t t = 0; t < requests; ++t)
            choices.push_back(static_cast<uint16_t>(t % (slots + 1)));
        const trace source = make_trace(trace_of_choices({1, 5, 1}, choices));
        CHECK(count_replay(source, job_of("lru", slots)).misses == requests);
        CHECK(count_replay(source, job_of("belady", slots)).misses ==
              slots + 1 + (requests - slots - 1) / slots);
    }
    SUBCASE("token mode with exactly one token's working set: lru = llru = lru per layer") {
        const shape dimensions{4, 8, 3};
        const trace source = make_trace(random_choices(dimensions, 500, 23));
        const uint64_t misses = count_replay(source, job_of("lru", 12)).misses;
        CHECK(count_replay(source, job_of("llru", 12)).misses == misses);
        CHECK(count_replay(source, job_of("lru", 12, order::token, sharing::per_layer)).misses ==
              misses);
    }
}

TEST_CASE("a pool too small for a step serves the rest without caching it") {
    // Two experts at once and one slot in each layer: one of them never gets one.
    const trace source = make_trace(trace_of_choices({2, 3, 2}, {0, 1, 2, 0, 0, 1, 2, 0}));
    for (const bool stepwise : {false, true}) {
        replay_job job = job_of("lru", 2, order::token, sharing::per_layer);
        job.stepwise = stepwise;
        const replay_result result = count_replay(source, job);
        CHECK(result.misses == 6);  // the first expert of each layer is hit by the second token
        CHECK(result.bypasses == 4);
        // A layer without a slot at all.
        job.slots = 1;
        CHECK(count_replay(source, job).misses == 7);
        CHECK(count_replay(source, job).bypasses == 6);
    }
}

TEST_CASE("a shared lru hits nothing up to the stated size, whatever the routing") {
    const shape dimensions{4, 5, 2};
    // Every token alike: the best routing for a cache. Ranks change places, which brings two
    // requests of an expert as close as possible.
    std::vector<uint16_t> choices;
    for (int token = 0; token < 20; ++token)
        for (uint32_t layer = 0; layer < dimensions.layers; ++layer) {
            choices.push_back(static_cast<uint16_t>(token % 2));
            choices.push_back(static_cast<uint16_t>(1 - token % 2));
        }
    const trace source = make_trace(trace_of_choices(dimensions, choices));
    for (const order requests : orders) {
        CAPTURE(name_of(requests));
        const uint32_t none = slots_without_lru_hits(dimensions.layers, dimensions.top_k, requests);
        CHECK(count_replay(source, job_of("lru", none, requests)).hits == 0);
        CHECK(count_replay(source, job_of("lru", none + 1, requests)).hits > 0);
    }
}

TEST_CASE("progress adds up to all requests, and the first tokens can be had alone") {
    const trace source = make_trace(random_choices({5, 40, 6}, 300, 4));
    for (const bool stepwise : {false, true}) {
        replay_job job = job_of("lru", 50);
        job.stepwise = stepwise;
        job.tokens = 250;
        uint64_t reported = 0;
        const auto result =
            replay(source, nullptr, job, [&reported](uint64_t done) { reported += done; });
        REQUIRE(result.ok());
        CHECK(reported == 250 * 30);
        CHECK(result->requests == 250 * 30);
        const trace cut = make_trace(cut_trace(source, 0, 250));
        job.tokens = 0;
        check_equal(*result, count_replay(cut, job));
    }
}

TEST_CASE("wrong victims end the run, or are counted and replaced by the default") {
    const trace source = make_trace(random_choices({2, 6, 2}, 200, 17));
    for (const char *fault : {"absent", "pinned", "range", "twice", "pool", "few", "many"}) {
        for (const order requests : orders) {
            const bool pinning = requests == order::token;
            if (!pinning && (fault == std::string("pinned") || fault == std::string("twice")))
                continue;
            for (const sharing pools : sharings) {
                if (pools == sharing::shared && fault == std::string("pool")) continue;
                CAPTURE(fault);
                CAPTURE(name_of(requests));
                CAPTURE(name_of(pools));
                const replay_result right =
                    count_replay(source, job_of("scripted", 6, requests, pools));
                CHECK(right.faults == 0);
                CHECK(right.fast);
                replay_job job = job_of("scripted", 6, requests, pools);
                job.params = {set("fault", std::string(fault)), set("from_call", int64_t{20})};
                const auto ended = replay(source, nullptr, job);
                // The wrapper's replay function never sees a count, so there `many` does no harm.
                const bool harmless = fault == std::string("many");
                CHECK(ended.ok() == harmless);
                if (!ended) CHECK(ended.failure().text.find("scripted") != std::string::npos);
                job.action = on_fault::replace;
                job.stepwise = harmless;
                const replay_result repaired = count_replay(source, job);
                CHECK(repaired.faults > 0);
                CHECK_FALSE(repaired.fast);
                check_equal(repaired, right);
            }
        }
    }
}

TEST_CASE("a replay function that is wrong is found out and not believed") {
    const trace source = make_trace(random_choices({2, 6, 2}, 200, 19));
    for (const char *lie : {"kept", "hit", "elsewhere", "state", "bypass"}) {
        for (const order requests : orders) {
            CAPTURE(lie);
            CAPTURE(name_of(requests));
            const replay_result right = count_replay(source, job_of("scripted", 5, requests));
            replay_job job = job_of("liar", 5, requests);
            job.params = {set("lie", std::string(lie))};
            const auto ended = replay(source, nullptr, job);
            REQUIRE_FALSE(ended.ok());
            CHECK(ended.failure().text.find("replay function") != std::string::npos);
            job.action = on_fault::replace;
            const replay_result repaired = count_replay(source, job);
            CHECK(repaired.faults == 1);
            check_equal(repaired, right);
        }
    }
}

TEST_CASE("refused pages count as misses that were bypassed") {
    // One layer, room for all: even pages miss once, odd ones always.
    const trace source = make_trace(trace_of_choices({1, 4, 2}, {0, 1, 2, 3, 0, 1, 2, 1, 3, 0}));
    for (const order requests : orders) {
        const replay_result result = count_replay(source, job_of("refuser", 4, requests));
        CHECK(result.misses == 2 + 5);
        CHECK(result.bypasses == 5);
        CHECK_FALSE(result.fast);
    }
}

TEST_CASE("policies that need more than the trace or the replay has are refused with the reason") {
    const shape dimensions{2, 4, 1};
    core::trace_data data = random_choices(dimensions, 30, 2);
    const trace bare = make_trace(data);
    const replay_job job = job_of("by_score", 3);
    const auto refused = replay(bare, nullptr, job);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().usage);
    CHECK(refused.failure().text.find("gate_scores") != std::string::npos);
    CHECK_FALSE(check_replay(bare, job_of("predicted", 3)).ok());

    // Scores of the k experts sum to 1; the chosen one is the best.
    data.gate_scores.values.assign(30 * dimensions.layers * dimensions.experts, 0.125f);
    for (size_t i = 0; i < data.chosen.size(); ++i)
        data.gate_scores.values[i * dimensions.experts + data.chosen[i]] = 0.625f;
    data.weights.values.assign(data.chosen.size(), 0.625f);
    data.tokens = 30;
    const trace scored = make_trace(data);
    for (const order requests : {order::rounds, order::serial}) {
        const auto wrong = replay(scored, nullptr, job_of("by_score", 3, requests));
        REQUIRE_FALSE(wrong.ok());
        CHECK(wrong.failure().text.find("--order token") != std::string::npos);
    }
    const replay_result result = count_replay(scored, job);
    CHECK_FALSE(result.fast);
    // By definition: the resident page that scored lowest when its layer was last visited goes.
    std::vector<float> score(8, 0);
    std::set<uint32_t> cache;
    uint64_t misses = 0;
    for (uint64_t token = 0; token < scored.tokens(); ++token) {
        for (uint32_t layer = 0; layer < dimensions.layers; ++layer) {
            const uint32_t page = layer * dimensions.experts + scored.expert(token, layer, 0);
            for (uint32_t expert = 0; expert < dimensions.experts; ++expert)
                score[layer * dimensions.experts + expert] =
                    layer * dimensions.experts + expert == page ? 1.25f : 0.125f;
            if (cache.count(page)) continue;
            ++misses;
            if (cache.size() == 3) {
                uint32_t lowest = *cache.begin();
                for (const uint32_t candidate : cache)
                    if (score[candidate] < score[lowest]) lowest = candidate;
                cache.erase(lowest);
            }
            cache.insert(page);
        }
    }
    CHECK(result.misses == misses);
}

TEST_CASE("the words of orders and sharings") {
    for (const order value : orders) CHECK(*parse_order(name_of(value)) == value);
    for (const sharing value : sharings) CHECK(*parse_sharing(name_of(value)) == value);
    CHECK_FALSE(parse_order("round").ok());
    CHECK_FALSE(parse_sharing("per_layer").ok());
}

}  // namespace replay_test

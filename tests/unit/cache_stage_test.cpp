// cache_stage_test.cpp - goal: the stage makes room only by sound advice, and blames wrong advice.
// Method: a policy that breaks one rule at a time, on states set by hand. Victims, faults and the
// final state are compared with the rules of cache.h.
#include "tests/unit/replay_fixture.h"

#include "core/cache/cache_stage.h"
#include "core/cache/caches.h"

namespace cache_stage_test {

using namespace moorage;
using namespace moorage::core;

namespace {

// Two layers of four experts; everything the stage needs, with the policy active.
struct bench {
    ledger truth;
    fault_log faults;
    std::unique_ptr<instance> policy;
    std::optional<cache_stage> stage;

    bench(std::vector<uint32_t> slots, const char *name, const settings &params,
          on_fault action = on_fault::replace)
        : truth(2, 4, std::move(slots)), faults(action) {
        environment environment;
        environment.residency = truth.view();
        auto created = instance::create(*test::cache_policy(name), params, environment);
        REQUIRE_MESSAGE(created.ok(), (created ? "" : created.failure().text));
        policy = std::move(*created);
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = 2, limits.experts = 4, limits.top_k = 3;
        limits.tokens_max = limits.requests_max = limits.segments = 1;
        limits.pools = truth.pools();
        limits.slots = 4;
        REQUIRE(policy->activate(limits).ok());
        stage.emplace(*policy, truth, faults);
    }
    bool load(std::vector<uint32_t> pages, bool at_once = true) {
        placed.assign(pages.size(), {});
        return stage->load(pages, MOORAGE_DEMAND, at_once, placed);
    }
    std::vector<uint32_t> resident() const {
        std::vector<uint32_t> pages;
        for (uint32_t page = 0; page < truth.page_count(); ++page)
            if (truth.state(page)) pages.push_back(page);
        return pages;
    }
    std::vector<uint32_t> victims() const {
        std::vector<uint32_t> pages;
        for (const auto &place : placed)
            if (place.victim != MOORAGE_NONE) pages.push_back(place.victim);
        std::ranges::sort(pages);
        return pages;
    }
    std::vector<placement_in_cache> placed;
};

using list = std::vector<uint32_t>;

}  // namespace

TEST_CASE("free slots are used before anything is evicted") {
    bench fixture({4}, "scripted", {});
    CHECK(fixture.load({0, 1, 5}));
    CHECK(fixture.victims() == list{});
    CHECK(fixture.resident() == list{0, 1, 5});
    CHECK(fixture.truth.used_slots(0) == 3);
    CHECK(fixture.load({2, 3}));
    CHECK(fixture.placed[0].victim == MOORAGE_NONE);
    CHECK(fixture.placed[1].victim == 0);
    CHECK(fixture.resident() == list{1, 2, 3, 5});
    CHECK(fixture.truth.used_slots(0) == 4);
    CHECK(fixture.faults.counts().empty());
}

TEST_CASE("pinned pages stay, and what finds no room is served without a slot") {
    bench fixture({2}, "scripted", {});
    REQUIRE(fixture.load({4, 5}));
    fixture.truth.pin(4);
    CHECK(fixture.load({6, 7}));
    CHECK(fixture.placed[0].victim == 5);
    CHECK(fixture.placed[1].cached == false);
    CHECK(fixture.resident() == list{4, 6});
    CHECK(fixture.faults.counts()
              .empty());  // nothing more could go, so it was no fault to name one only
}

TEST_CASE("a load still to come is marked in flight and can be evicted again") {
    bench fixture({1}, "scripted", {});
    constexpr uint32_t in_flight = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    REQUIRE(fixture.load({2}, /*at_once=*/false));
    fixture.truth.expect_kept(2, MOORAGE_WHOLE);
    CHECK(fixture.truth.state(2) == in_flight);
    CHECK(fixture.load({3}));
    CHECK(fixture.placed[0].victim == 2);
    CHECK(fixture.truth.state(2) == 0);
    CHECK(fixture.truth.used_slots(0) == 1);
}

TEST_CASE("a refused page gets no slot and costs no victim its own") {
    bench fixture({2}, "refuser", {});
    REQUIRE(fixture.load({0, 2}));
    CHECK(fixture.load({5, 6}));
    CHECK_FALSE(fixture.placed[0].cached);
    CHECK(fixture.placed[0].victim == MOORAGE_NONE);
    CHECK(fixture.placed[1].cached);
    CHECK(fixture.truth.used_slots(0) == 2);
    CHECK(fixture.resident().size() == 2);
    CHECK(fixture.truth.state(5) == 0);
    bench empty({2}, "refuser", {});
    CHECK(empty.load({1, 2}));
    CHECK(empty.resident() == list{2});
    CHECK(empty.truth.used_slots(0) == 1);
}

TEST_CASE("every wrong victim is a fault and is replaced by the smallest page that may go") {
    struct wrong {
        const char *fault, *text;
        bool two_pools;
    };
    for (const wrong &scenario :
         {wrong{"absent", "not resident", false}, wrong{"pinned", "is pinned", false},
          wrong{"range", "out of range", false}, wrong{"twice", "twice", false},
          wrong{"few", "of 2 victims", false}, wrong{"many", "3 victims given", false},
          wrong{"pool", "of pool 1", true}}) {
        CAPTURE(scenario.fault);
        for (const on_fault action : {on_fault::replace, on_fault::abort}) {
            bench fixture(scenario.two_pools ? list{3, 1} : list{4}, "scripted",
                          {test::set("fault", std::string(scenario.fault))}, action);
            const list initial_pages = scenario.two_pools ? list{0, 1, 2} : list{0, 1, 2, 3};
            for (const uint32_t page : initial_pages) REQUIRE(fixture.load({page}));
            if (scenario.two_pools) REQUIRE(fixture.load({4}));
            fixture.truth.pin(2);
            // Layer 0 of the two pools has one page left to load; layer 1 of the shared one has
            // all.
            const bool goes_on = fixture.load(scenario.two_pools ? list{3} : list{4, 5});
            CHECK(goes_on == (action == on_fault::replace));
            CHECK(fixture.faults.count("scripted") == 1);
            if (action == on_fault::abort) {
                CHECK(fixture.faults.fatal().find(scenario.text) != std::string::npos);
                continue;
            }
            CHECK(fixture.victims() == (scenario.two_pools ? list{0} : list{0, 1}));
            CHECK(fixture.truth.used_slots(0) == (scenario.two_pools ? 3 : 4));
            CHECK(fixture.resident().size() == 4);
        }
    }
}

TEST_CASE("a shrinking pool evicts down to its slots, pinned pages later") {
    bench fixture({4}, "scripted", {});
    REQUIRE(fixture.load({0, 1, 2, 3}));
    fixture.truth.pin(0);
    std::vector<uint32_t> gone;
    CHECK(fixture.stage->shrink(0, gone));
    CHECK(gone.empty());
    fixture.truth.set_slots(std::vector<uint32_t>{1});
    CHECK(fixture.stage->shrink(0, gone));
    CHECK(gone == list{1, 2, 3});
    CHECK(fixture.truth.used_slots(0) == 1);
    gone.clear();
    fixture.truth.set_slots(std::vector<uint32_t>{0});
    CHECK(fixture.stage->shrink(0, gone));
    CHECK(gone.empty());
    CHECK(fixture.truth.used_slots(0) == 1);
    fixture.truth.unpin(0, true);
    CHECK(fixture.stage->shrink(0, gone));
    CHECK(gone == list{0});
    CHECK(fixture.resident().empty());
    CHECK(fixture.faults.counts().empty());
}

TEST_CASE("each device makes room with its own policy among its own pages") {
    // Even pages on one, odd ones on the other; two slots each.
    ledger first(2, 4, {2}), second(2, 4, {2}), combined(2, 4, {0});
    const memories truth({&first, &second}, &combined, {0, 1, 0, 1, 0, 1, 0, 1});
    fault_log faults(on_fault::replace);
    std::vector<std::unique_ptr<instance>> owned_policies;
    std::vector<instance *> policies;
    for (uint32_t device = 0; device < 2; ++device) {
        environment environment;
        environment.residency = truth.ledger_of_device(device).view();
        auto created = instance::create(*test::cache_policy("scripted"), {}, environment);
        REQUIRE(created.ok());
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = 2, limits.experts = 4, limits.top_k = 3;
        limits.tokens_max = limits.requests_max = limits.segments = limits.pools = 1;
        limits.slots = 2;
        REQUIRE((*created)->activate(limits).ok());
        owned_policies.push_back(std::move(*created));
        policies.push_back(owned_policies.back().get());
    }
    caches stages(policies, truth, faults);
    std::vector<placement_in_cache> placed(4);
    REQUIRE(stages.load(list{0, 1, 2, 3}, MOORAGE_DEMAND, true, placed));
    for (const placement_in_cache &placement : placed) CHECK(placement.cached);
    // Pages of the second layer push out those of their own device, wherever they stand.
    placed.resize(3);
    REQUIRE(stages.load(list{5, 4, 7}, MOORAGE_DEMAND, true, placed));
    for (const placement_in_cache &placement : placed) CHECK(placement.cached);
    CHECK(placed[0].page == 5);
    CHECK(placed[0].victim % 2 == 1);
    CHECK(placed[1].page == 4);
    CHECK(placed[1].victim == 0);
    CHECK(placed[2].victim % 2 == 1);
    CHECK(combined.view()->host_used[0] == 4);
    CHECK(faults.counts().empty());
    CHECK(truth.is_consistent());
}

}  // namespace cache_stage_test

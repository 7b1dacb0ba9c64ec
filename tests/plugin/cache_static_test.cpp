// Goal: cache static names, admits and gives up exactly its content. Method: cases by hand for each
// way to choose the content, shared and per layer. For `popular`, a random history compared with
// plain counts.
#include <doctest/doctest.h>

#include "any_policy.h"

namespace cache_static_test {

using namespace moorage::test;

namespace {

using pages = std::vector<uint32_t>;

void observe_step(any_policy &policy, const world &test_world, uint64_t token, uint32_t layer,
                  const std::vector<uint32_t> &experts) {
    step_data data;
    fill_step(data, test_world, token * test_world.limits.layers + layer, layer, {experts});
    policy.observe(data.step);
}

void set_resident(world &test_world, const pages &content) {
    std::fill(test_world.state.begin(), test_world.state.end(), 0);
    for (const uint32_t page : content) test_world.state[page] = MOORAGE_WHOLE;
}

}  // namespace

TEST_CASE("first_layers: whole layers, and slots beyond them stay free") {
    world test_world(4, 3, 1, true, 8);  // two layers of three, two slots left
    any_policy policy("cache/static", test_world);
    CHECK(policy.fill(0, MOORAGE_NONE, 8) == pages{0, 1, 2, 3, 4, 5});
    CHECK(policy.fill(0, MOORAGE_NONE, 2) == pages{0, 1});
    set_resident(test_world, {0, 1, 4});
    CHECK(policy.fill(0, MOORAGE_NONE, 5) == pages{2, 3, 5});
    CHECK(policy.admit(5));
    CHECK_FALSE(policy.admit(6));
    CHECK_FALSE(policy.admit(5, 4));
    // A budget shrinks: the last pages go first, except pages in use.
    set_resident(test_world, {0, 1, 2, 3, 4, 5});
    test_world.state[4] |= MOORAGE_STATE_PINNED;
    CHECK(policy.victims(0, 0, 3) == pages{5, 3, 2});
}

TEST_CASE("first_layers per layer: the first experts of each") {
    world test_world(2, 4, 1, false, 3);  // two slots and one
    any_policy policy("cache/static", test_world);
    CHECK(policy.fill(0, 0, 4) == pages{0, 1});
    CHECK(policy.fill(1, 1, 4) == pages{4});
    test_world.pool_slots = {0, 3};  // another budget
    CHECK(policy.fill(0, 0, 4).empty());
    CHECK(policy.fill(1, 1, 4) == pages{4, 5, 6});
    CHECK_FALSE(policy.admit(0));
}

TEST_CASE("nothing: no content, nothing is admitted, room can be named all the same") {
    world test_world(2, 3, 1, true, 4);
    any_policy policy("cache/static", test_world, {{"which", "nothing"}});
    CHECK(policy.fill(0, MOORAGE_NONE, 4).empty());
    for (uint32_t page = 0; page < 6; ++page) CHECK_FALSE(policy.admit(page));
    set_resident(test_world, {1, 3});
    CHECK(policy.victims(0, 0, 2) == pages{3, 1});
}

TEST_CASE("listed: in the order of the list") {
    world test_world(2, 3, 1, true, 3);
    any_policy policy("cache/static", test_world, {{"which", "listed"}, {"listed", "4,0,5,0,2"}});
    CHECK(policy.fill(0, MOORAGE_NONE, 3) == pages{4, 0, 5});
    CHECK(policy.admit(5));
    CHECK_FALSE(policy.admit(2));  // in the list, but there is no room for it
    CHECK_FALSE(policy.admit(1));
    CHECK(policy.admit(4, 1));  // replaces a page that does not belong
    test_world.pool_slots[0] = 6;
    CHECK(policy.fill(0, MOORAGE_NONE, 6) == pages{4, 0, 5, 2});
    CHECK_THROWS(any_policy("cache/static", test_world, {{"which", "listed"}, {"listed", "4 0"}}));
    CHECK_THROWS(any_policy("cache/static", test_world, {{"which", "listed"}, {"listed", "6"}}));
}

TEST_CASE("popular: learns, takes the most requested, then leaves spare slots to anyone") {
    world test_world(1, 6, 1, true, 3);
    any_policy policy("cache/static", test_world, {{"which", "popular"}, {"learn_tokens", "4"}});
    CHECK(policy.fill(0, MOORAGE_NONE, 3).empty());
    const uint32_t asked[] = {5, 2, 5, 1};
    for (uint64_t token = 0; token < 4; ++token) {
        observe_step(policy, test_world, token, 0, {asked[token]});
        CHECK_FALSE(policy.admit(asked[token]));
    }
    observe_step(policy, test_world, 4, 0, {0});
    CHECK(policy.admit(5));
    CHECK(policy.admit(1));
    CHECK(policy.admit(2));
    CHECK_FALSE(policy.admit(0));
    CHECK(policy.fill(0, MOORAGE_NONE, 3) == pages{5, 1, 2});
    set_resident(test_world, {0, 5, 3, 1});
    CHECK(policy.victims(0, 0, 3) == pages{3, 0, 1});
    observe_step(policy, test_world, 7, 0, {0});
    CHECK_FALSE(policy.admit(0));
    observe_step(policy, test_world, 8, 0, {0});  // twice the time: a free slot is free for all
    CHECK(policy.admit(0));
    CHECK_FALSE(policy.admit(0, 5));
    policy.plugin->reset(policy.plugin);
    CHECK_FALSE(policy.admit(5));
}

TEST_CASE("popular: as plain counts say, shared and per layer") {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        std::mt19937_64 generator(seed);
        CAPTURE(seed);
        const uint32_t layers = 1 + generator() % 3, experts = 2 + generator() % 6;
        const bool shared = generator() % 2;
        const auto slots = static_cast<uint32_t>(1 + generator() % (layers * experts));
        const uint32_t learn = 1 + generator() % 12;
        world test_world(layers, experts, 2, shared, slots);
        any_policy policy("cache/static", test_world,
                          {{"which", "popular"}, {"learn_tokens", std::to_string(learn)}});
        std::vector<uint32_t> counts(layers * experts);
        for (uint64_t token = 0; token <= learn; ++token)
            for (uint32_t layer = 0; layer < layers; ++layer) {
                const auto chosen = draw_distinct(generator, 2, experts);
                observe_step(policy, test_world, token, layer, chosen);
                if (token < learn)
                    for (const uint32_t expert : chosen) ++counts[layer * experts + expert];
            }
        for (uint32_t pool = 0; pool < test_world.view.pools; ++pool) {
            pages best;
            for (uint32_t page = 0; page < counts.size(); ++page)
                if (counts[page] > 0 && (shared || page / experts == pool)) best.push_back(page);
            std::stable_sort(best.begin(), best.end(),
                             [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
            best.resize(std::min<size_t>(best.size(), test_world.pool_slots[pool]));
            CHECK(policy.fill(pool, shared ? MOORAGE_NONE : pool, layers * experts) == best);
            for (uint32_t page = 0; page < counts.size(); ++page)
                if (shared || page / experts == pool)
                    CHECK(policy.admit(page) ==
                          (std::find(best.begin(), best.end(), page) != best.end()));
        }
    }
}

}  // namespace cache_static_test

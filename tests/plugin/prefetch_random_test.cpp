// Goal: the prefetch policy random orders missing experts of the next layer, each once, as many as
// the buffer takes, all with the same chance. Method: left-out experts by hand; counts over many
// draws.
#include <doctest/doctest.h>

#include <set>

#include "any_policy.h"
#include "order_bytes.h"

namespace prefetch_random_test {

using namespace moorage::test;

namespace {

struct ordered {
    std::vector<uint32_t> pages;
    std::vector<uint8_t> segments;
};

ordered plan(any_policy &policy, const world &test_world, uint32_t layer, uint32_t buffer_free) {
    step_data data;
    fill_step(data, test_world, layer, layer, {{0}});
    const uint32_t next = (layer + 1) % test_world.limits.layers, offsets[] = {0, 0};
    moorage_forecast forecast{};
    forecast.size = sizeof(forecast);
    forecast.target_count = 1;
    forecast.buffer_free = buffer_free;
    forecast.host_layers = &next;
    forecast.host_offsets = offsets;
    ordered result{std::vector<uint32_t>(8), std::vector<uint8_t>(8, MOORAGE_WHOLE)};
    moorage_orders orders{
        sizeof(orders), 0, 8, 0, result.pages.data(), result.segments.data(), order_bytes(),
        order_bytes()};
    const uint32_t count = policy.prefetch->plan(policy.plugin, &data.step, &forecast, &orders);
    result.pages.resize(count);
    result.segments.resize(count);
    return result;
}

}  // namespace

TEST_CASE("what is missing of each expert of the next layer, once") {
    world test_world(2, 4, 1, true, 1);
    any_policy policy("prefetch/random", test_world);
    CHECK(policy.prefetch->horizon(policy.plugin) == 1);
    test_world.state[5] = MOORAGE_WHOLE;
    test_world.state[6] = MOORAGE_SEGMENT(0, 2);
    test_world.state[7] = MOORAGE_SEGMENT(1, 2) << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    for (uint32_t round = 0; round < 100; ++round) {
        const ordered planned = plan(policy, test_world, 0, 8);
        REQUIRE(planned.pages.size() == 3);
        for (size_t i = 0; i < 3; ++i)
            CHECK(planned.segments[i] == (planned.pages[i] == 4   ? MOORAGE_WHOLE
                                          : planned.pages[i] == 6 ? MOORAGE_SEGMENT(1, 2)
                                                                  : MOORAGE_SEGMENT(0, 2)));
        CHECK(std::set<uint32_t>(planned.pages.begin(), planned.pages.end()) ==
              std::set<uint32_t>{4, 6, 7});
        CHECK(plan(policy, test_world, 1, 8).pages.size() == 4);  // round to the first layer
        CHECK(plan(policy, test_world, 1, 2).pages.size() == 2);
        CHECK(plan(policy, test_world, 1, 0).pages.empty());
    }
}

TEST_CASE("every pair of experts comes first equally often") {
    world test_world(2, 4, 1, true, 1);
    any_policy policy("prefetch/random", test_world);
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> seen;
    const uint32_t rounds = 12'000;
    for (uint32_t round = 0; round < rounds; ++round) {
        const ordered planned = plan(policy, test_world, 0, 2);
        ++seen[{planned.pages[0], planned.pages[1]}];
    }
    CHECK(seen.size() == 12);
    // 1,000 each, and four standard deviations of about 30.
    for (const auto &[pair, count] : seen) {
        CHECK(count > 880);
        CHECK(count < 1120);
    }
}

}  // namespace prefetch_random_test

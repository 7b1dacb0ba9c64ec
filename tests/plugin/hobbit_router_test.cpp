// hobbit_router_test.cpp - goal: router `hobbit` decides as HOBBIT's token-level loading does.
// Method: steps worked out by hand, absent experts first, then each kind of residency; the
// definition over sums, naively, on random batches.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "policy_drive.h"

namespace hobbit_router_test {

using namespace moorage::test;

namespace {

using class_rows = std::vector<std::vector<uint32_t>>;
constexpr uint32_t top = MOORAGE_CLASS_TOP, small = MOORAGE_CLASS_SMALL,
                   dropped = MOORAGE_CLASS_DROPPED;
constexpr uint32_t in_second = MOORAGE_WHOLE | 1u << MOORAGE_STATE_VERSION_SHIFT;

struct route_result {
    uint32_t count = 0, flags = 0;
    class_rows classes;
};

route_result route(const driven_policy &policy, drawn_step &step) {
    const moorage_step &table = step.table();
    const size_t count = size_t{table.token_count} * table.top_k;
    std::vector<uint32_t> experts(count, MOORAGE_NONE);
    std::vector<float> weights(count, std::numeric_limits<float>::quiet_NaN());
    std::vector<uint8_t> classes(count, MOORAGE_CLASS_TOP);
    moorage_route route_table{sizeof(route_table), 0, experts.data(), weights.data(),
                              classes.data()};
    route_result result;
    result.count = policy.router->select(policy.plugin, &table, &route_table);
    result.flags = route_table.flags;
    if (result.count == 0) return result;
    // The experts are the model's own, and so are their weights.
    CHECK(std::equal(experts.begin(), experts.end(), table.host_chosen));
    CHECK(std::all_of(weights.begin(), weights.end(),
                      [](float weight) { return std::isnan(weight); }));
    for (size_t first = 0; first < count; first += table.top_k)
        result.classes.emplace_back(&classes[first], &classes[first] + table.top_k);
    return result;
}

// Layer 1 of two, experts of three tokens, best first. Weights, and the share of the earlier ones:
//   token 0: 0:.5   1:.25    2:.1875   3:.0625     0, .5,   .75,   .9375
//   token 1: 4:.75  5:.1875  6:.03125  7:.03125    0, .75,  .9375, .96875
//   token 2: 7:.25  6:.25    5:.25     0:.25       0, .25,  .5,    .75
struct three_rows {
    policy_world world;
    drawn_step step;
    three_rows() {
        world.layers = 2;
        world.experts = 8;
        world.top_k = 4;
        world.versions = 3;
        world.make();
        step.layer = 1;
        step.experts = 8;
        step.top_k = 4;
        step.chosen = {{0, 1, 2, 3}, {4, 5, 6, 7}, {7, 6, 5, 0}};
        step.scores = {{.5f, .25f, .1875f, .0625f, 0, 0, 0, 0},
                       {0, 0, 0, 0, .75f, .1875f, .03125f, .03125f},
                       {.25f, 0, 0, 0, 0, .25f, .25f, .25f}};
    }
    uint32_t &state(uint32_t expert) { return world.state[world.experts + expert]; }
};

}  // namespace

TEST_CASE("absent experts by the share of those before them") {
    three_rows fixture;
    const driven_policy policy("router/hobbit", "hobbit", fixture.world);
    const class_rows expected = {
        {top, top, small, dropped}, {top, small, dropped, dropped}, {top, top, top, small}};
    CHECK(route(policy, fixture.step).classes == expected);
    // Weights that do not sum to 1 are taken as shares of their sum.
    for (auto &row : fixture.step.scores)
        for (float &score : row) score *= 8;
    CHECK(route(policy, fixture.step).classes == expected);
}

TEST_CASE("a share that meets a threshold is still within it") {
    three_rows fixture;
    const driven_policy policy("router/hobbit", "hobbit", fixture.world,
                               {{"t1", "0.5"}, {"t2", "0.9375"}});
    CHECK(route(policy, fixture.step).classes == class_rows{{top, top, small, small},
                                                            {top, small, small, dropped},
                                                            {top, top, top, small}});
}

TEST_CASE("what is here, or on its way, is taken as it is") {
    three_rows fixture;
    const driven_policy policy("router/hobbit", "hobbit", fixture.world);
    fixture.state(2) = MOORAGE_WHOLE;  // absent: small
    fixture.state(3) = MOORAGE_WHOLE;  // absent: dropped
    fixture.state(5) = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    fixture.state(6) = in_second;  // absent: dropped for token 1, the first version for token 2
    fixture.state(7) = MOORAGE_SEGMENT(0, 2);  // a part is not enough
    fixture.state(0) = in_second;  // the first version for token 0, the second for token 2
    CHECK(route(policy, fixture.step).classes ==
          class_rows{{top, top, top, top}, {top, top, small, dropped}, {top, top, top, small}});
    // In the other layer they do not count.
    fixture.step.layer = 0;
    CHECK(route(policy, fixture.step).classes[0] ==
          std::vector<uint32_t>{top, top, small, dropped});
}

TEST_CASE("with one version, what would be small is loaded in that") {
    three_rows fixture;
    fixture.world.versions = 1;
    const driven_policy policy("router/hobbit", "hobbit", fixture.world);
    CHECK(route(policy, fixture.step).classes ==
          class_rows{{top, top, top, dropped}, {top, top, dropped, dropped}, {top, top, top, top}});
}

TEST_CASE("thresholds at their ends: the model's own, all small, the first alone") {
    three_rows fixture;
    const driven_policy unchanged("router/hobbit", "hobbit", fixture.world,
                                  {{"t1", "1"}, {"t2", "1"}});
    CHECK(route(unchanged, fixture.step).classes == class_rows(3, std::vector<uint32_t>(4, top)));
    const driven_policy never("router/hobbit", "hobbit", fixture.world,
                              {{"t1", "-1"}, {"t2", "1"}});
    CHECK(route(never, fixture.step).classes == class_rows(3, std::vector<uint32_t>(4, small)));
    const driven_policy first_only("router/hobbit", "hobbit", fixture.world,
                                   {{"t1", "0"}, {"t2", "-1"}});
    CHECK(route(first_only, fixture.step).classes ==
          class_rows(3, {top, dropped, dropped, dropped}));
    const driven_policy least("router/hobbit", "hobbit", fixture.world,
                              {{"t1", "-1"}, {"t2", "-1"}});
    CHECK(route(least, fixture.step).classes == class_rows(3, {small, dropped, dropped, dropped}));
}

TEST_CASE("prefill and weights are left alone where that is asked for") {
    three_rows fixture;
    fixture.step.phase = MOORAGE_PREFILL;
    const driven_policy policy("router/hobbit", "hobbit", fixture.world);
    CHECK(route(policy, fixture.step).count == 3);
    CHECK(route(policy, fixture.step).flags == 0);
    const driven_policy decodes("router/hobbit", "hobbit", fixture.world, {{"prefill", "0"}});
    CHECK(route(decodes, fixture.step).count == 0);
    const driven_policy scaled("router/hobbit", "hobbit", fixture.world, {{"renormalise", "1"}});
    CHECK(route(scaled, fixture.step).flags == MOORAGE_ROUTE_RENORMALISE);
}

TEST_CASE("the definition, naively, on random batches") {
    std::mt19937_64 draw(1);
    uint32_t met[5] = {};
    for (uint32_t trial = 0; trial < 500; ++trial) {
        three_rows fixture;
        for (uint32_t &state : fixture.world.state) {
            const auto kind = draw() % 4;
            state = kind == 0 ? MOORAGE_WHOLE : kind == 1 ? in_second : 0;
        }
        for (size_t token = 0; token < 3; ++token) {
            fixture.step.scores[token] = draw_scores(draw, 8, 0);
            fixture.step.chosen[token] = ranking(fixture.step.scores[token]);
            fixture.step.chosen[token].resize(4);
        }
        const driven_policy policy("router/hobbit", "hobbit", fixture.world,
                                   {{"t1", "0.4"}, {"t2", "0.7"}});
        const class_rows got = route(policy, fixture.step).classes;
        for (size_t token = 0; token < 3; ++token) {
            double total = 0;
            for (const uint32_t expert : fixture.step.chosen[token])
                total += fixture.step.scores[token][expert];
            for (size_t rank = 0; rank < 4; ++rank) {
                double earlier = 0;
                for (size_t i = 0; i < rank; ++i)
                    earlier += fixture.step.scores[token][fixture.step.chosen[token][i]];
                const double share = earlier / total;
                const uint32_t state = fixture.state(fixture.step.chosen[token][rank]);
                uint32_t expected = share <= 0.4 ? top : share <= 0.7 ? small : dropped;
                if (state == MOORAGE_WHOLE) expected = top;
                if (state == in_second && expected == dropped) expected = small;
                CHECK(got[token][rank] == expected);
                ++met[expected];
            }
        }
    }
    CHECK(std::min({met[top], met[small], met[dropped]}) > 100);
}

}  // namespace hobbit_router_test

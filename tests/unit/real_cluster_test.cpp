// real_cluster_test.cpp - goal: the rebalancer's requests become plans that are each sound. Method:
// the epochs of a small cluster worked out by hand; then random requests, with each epoch checked.
#include "tools/node/real_cluster.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/base/random.h"
#include "tests/unit/small_scene.h"

namespace real_cluster_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

// Two servers: west with devices 0 and 1, east with 2; four experts.
plan_record first_record() { return {5, {{0}, {0}, {0, 1}, {1}}, {}}; }

struct listener final : cluster_watcher {
    void activated(uint32_t, uint32_t, uint32_t) override {}
    void brought(uint32_t step) override { steps.push_back(step); }
    std::vector<uint32_t> steps;
};

bool has(const std::vector<moorage_copy> &copies, uint32_t expert, uint32_t device) {
    return std::ranges::any_of(copies, [=](const moorage_copy &copy) {
        return copy.expert == expert && copy.device == device;
    });
}

}  // namespace

TEST_CASE("a copy is coming, then it counts, then another one goes: each is an epoch of its own") {
    const scene scene = small_scene();
    real_cluster cluster(scene, first_record());
    listener hears;
    cluster.watch(&hears);
    CHECK(cluster.copies().size() == 5);
    CHECK(has(cluster.copies(), 3, 2));
    CHECK_FALSE(cluster.take_next());

    cluster.bring({7, 0, 0, 2, 10});
    auto next = cluster.take_next();
    REQUIRE(next);
    CHECK(next->epoch == 6);
    CHECK(next->holders == first_record().holders);
    CHECK(next->coming == std::vector<moving_copy>{{0, 0, 1}});
    CHECK_FALSE(cluster.take_next());
    cluster.accept(6);

    CHECK_FALSE(cluster.take({0, 0}));  // no other server has it yet
    cluster.arrived(1, {2, 3});         // not the requested copies
    cluster.arrived(0, {0});            // not of whom
    CHECK(hears.steps.empty());
    cluster.arrived(1, {0});
    CHECK(hears.steps == std::vector<uint32_t>{7});
    next = cluster.take_next();
    REQUIRE(next);
    CHECK(next->epoch == 7);
    CHECK(next->holders[0] == std::vector<uint32_t>{0, 1});
    CHECK(next->coming.empty());
    // It was not written: the same is asked for again.
    cluster.propose_again();
    CHECK(cluster.take_next() == next);
    cluster.accept(7);

    CHECK(cluster.take({0, cluster.copies().front().device}));
    next = cluster.take_next();
    REQUIRE(next);
    CHECK(next->holders[0] == std::vector<uint32_t>{1});
    // From the cloud, and given up: as if it had never been.
    cluster.bring({8, 1, MOORAGE_NONE, 2, 10});
    CHECK(cluster.take_next()->coming == std::vector<moving_copy>{{1, no_server, 1}});
    cluster.give_up();
    CHECK(cluster.take_next()->coming.empty());
    cluster.arrived(1, {1});
    CHECK(hears.steps.size() == 1);
}

TEST_CASE("whoever is away is no holder to rely on; a second device of a server is") {
    const scene scene = small_scene();
    real_cluster cluster(scene, first_record());
    cluster.set_present({1, 0});
    const auto device = [&](uint32_t expert, uint32_t server) {
        for (const moorage_copy &copy : cluster.copies())
            if (copy.expert == expert && scene.cluster.device_server[copy.device] == server)
                return copy.device;
        return MOORAGE_NONE;
    };
    CHECK_FALSE(cluster.take({2, device(2, 0)}));  // east is away
    CHECK(cluster.take({2, device(2, 1)}));
    CHECK_FALSE(cluster.take({3, 2}));
    // Copies of one server on its two devices are one to the plan.
    const uint32_t first_device = device(1, 0), second_device = first_device == 0 ? 1 : 0;
    cluster.bring({1, 1, first_device, second_device, 10});
    cluster.arrived(0, {1});
    CHECK(cluster.take({1, first_device}));
    CHECK_FALSE(cluster.take({1, second_device}));
    CHECK(cluster.take_next()->holders[1] == std::vector<uint32_t>{0});
}

TEST_CASE("copies that were on their way when another one begins to lead are given up") {
    const scene scene = small_scene();
    plan_record in_force = first_record();
    in_force.coming = {{0, 0, 1}};
    real_cluster cluster(scene, in_force);
    const auto next = cluster.take_next();
    REQUIRE(next);
    CHECK(next->coming.empty());
    CHECK(next->holders == first_record().holders);
}

TEST_CASE("any requests: no epoch has an expert without a holder, epochs rise by one") {
    const scene scene = small_scene();
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        random_stream draw(seed, 0);
        real_cluster cluster(scene, first_record());
        uint64_t epoch = 5;
        uint32_t step = 0;
        for (int i = 0; i < 60; ++i) {
            const auto expert = static_cast<uint32_t>(draw.below(4)),
                       device = static_cast<uint32_t>(draw.below(3));
            const uint32_t server = scene.cluster.device_server[device];
            const auto &coming = cluster.plan().coming;
            const bool on_its_way = std::ranges::any_of(
                coming, [&](const moving_copy &copy) { return copy.page == expert; });
            switch (draw.below(4)) {
                case 0:
                    if (!on_its_way && !has(cluster.copies(), expert, device))
                        cluster.bring({step++, expert, MOORAGE_NONE, device, 10});
                    break;
                case 1:
                    cluster.arrived(server, {expert});
                    break;
                default:
                    cluster.take({expert, device});
            }
            const auto next = cluster.take_next();
            if (!next) continue;
            CHECK(next->epoch == epoch + 1);
            for (const auto &holders : next->holders) CHECK(!holders.empty());
            cluster.accept(epoch = next->epoch);
        }
    }
}

}  // namespace real_cluster_test

// Goal: SlimCaching's placement policies follow the paper's algorithms and keep their guarantees.
// Method: compare slim_greedy with a loop that asks for every gain again before every pick. Compare
// slim_dp and slim_maxconv with all subsets of a knapsack and with each other. Check guarantees by
// the best of all placements by the slow reference (slim_reference.h). The known counter-examples;
// baselines, refusals and coverage by hand.
#include <doctest/doctest.h>

#include <map>

#include <moorage/latency.hpp>

#include "slim_bound.h"
#include "slim_instance.h"
#include "slim_reference.h"

namespace slim_policies_test {

namespace {

using namespace moorage::test;

std::vector<moorage_copy> sorted(std::vector<moorage_copy> copies) {
    std::sort(copies.begin(), copies.end(), [](const moorage_copy &a, const moorage_copy &b) {
        return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
    });
    return copies;
}
bool same(const std::vector<moorage_copy> &a, const std::vector<moorage_copy> &b) {
    return std::ranges::equal(sorted(a), sorted(b), [](const auto &x, const auto &y) {
        return x.expert == y.expert && x.device == y.device;
    });
}

// Algorithm 1 as the readings have it, every gain asked for anew.
std::vector<moorage_copy> plain_greedy(placement_scene &scene) {
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    moorage::latency_model model(cluster, demand);
    std::vector<uint64_t> left = scene.device_bytes;
    while (true) {
        moorage_copy best{MOORAGE_NONE, 0};
        double most = 0;
        for (uint32_t x = 0; x < scene.expert_count(); ++x) {
            for (uint32_t n = 0; n < scene.servers; ++n) {
                uint32_t device = MOORAGE_NONE;
                for (uint32_t d = 0; d < scene.devices(); ++d)
                    if (device == MOORAGE_NONE && scene.device_server[d] == n &&
                        left[d] >= model.bytes(x))
                        device = d;
                if (device == MOORAGE_NONE || model.holds(x, n)) continue;
                const double gain = model.gain(x, device);
                const double ratio = gain / static_cast<double>(model.bytes(x));
                if (gain >= 1e-12 && ratio > most) most = ratio, best = {x, device};
            }
        }
        if (best.expert == MOORAGE_NONE) return model.copies();
        left[best.device] -= model.bytes(best.expert);
        model.add(best.expert, best.device);
    }
}

// The largest F over every placement that fits; every plan a bit for each (expert, server).
double best_saved_s(placement_scene &scene) {
    const slim_reference reference(scene);
    const uint32_t places = scene.expert_count() * scene.servers;
    REQUIRE(places <= 16);
    REQUIRE(scene.devices() == scene.servers);
    double best = 0;
    for (uint32_t plan = 0; plan < 1u << places; ++plan) {
        slim_placement placed = reference.empty();
        std::vector<uint64_t> used(scene.servers);
        bool fits = true;
        for (uint32_t place = 0; place < places && fits; ++place) {
            if ((plan >> place & 1) == 0) continue;
            const uint32_t n = place / scene.expert_count(), x = place % scene.expert_count();
            placed[n][x] = n;
            used[n] += scene.expert_bytes[reference.model_of(x)];
            fits = used[n] <= scene.device_bytes[n];
        }
        if (fits) best = std::max(best, reference.saved_s(placed));
    }
    return best;
}

}  // namespace

TEST_CASE("slim_greedy is plain greedy, where gains fall and where they rise") {
    placement_policy greedy("slim_greedy");
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.experts = 6, shape.layers = 2, shape.room = 2 + seed % 4;
        shape.top_k = {1 + static_cast<uint32_t>(seed % 3), 2};
        shape.servers = 1 + static_cast<uint32_t>(seed % 4);
        shape.devices = 1 + static_cast<uint32_t>(seed / 4 % 2);
        shape.equal_sizes = seed % 2 == 0, shape.messages_dominate = seed % 5 != 0;
        shape.flags = static_cast<uint32_t>(seed / 2 % 4);
        placement_scene scene = random_scene(shape, seed);
        const std::vector<moorage_copy> plan = greedy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(same(plan, plain_greedy(scene)));
        const slim_reference reference(scene);
        const std::map<std::string, double> facts = greedy.facts();
        CHECK(facts.at("objective_s") ==
              doctest::Approx(reference.token_s(reference.placement_of(plan))));
        CHECK(facts.at("saved_s") ==
              doctest::Approx(reference.saved_s(reference.placement_of(plan))));
    }
}

TEST_CASE("a greedy pick raises the gain of what is chosen with it") {
    // K = 2, one server, a second each way: expert 0 is worth 0.65 at first, 2 is worth 0.55 and 1
    // 0.45. With 0 there 1 saves the way up as well, 0.9, and 2 only for the calls with 0, 0.75.
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(1, 4, 2, 10, 1000);
    scene.add_device(scene.add_server(), 20);
    scene.add_cloud(1000, 0, 0);
    scene.add_home(0), scene.add_call(0, {0, 1}, 0.45), scene.add_call(0, {2, 3}, 0.35);
    scene.add_call(0, {0, 2}, 0.2);
    placement_policy greedy("slim_greedy");
    CHECK(same(greedy.plan(scene), {{0, 0}, {1, 0}}));
    CHECK(greedy.facts().at("saved_s") == doctest::Approx(0.45 * 3 + 0.2));
}

TEST_CASE("both knapsacks are the best of all subsets") {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 1, shape.experts = 4, shape.room = 3;
        shape.top_k = {1 + static_cast<uint32_t>(seed % 3), 2, 1};
        shape.equal_sizes = seed % 5 == 0;
        placement_scene scene = random_scene(shape, seed);
        const slim_reference reference(scene);
        std::vector<double> value;
        for (uint32_t x = 0; x < scene.expert_count(); ++x) {
            slim_placement placed = reference.empty();
            placed[0][x] = 0;
            value.push_back(reference.saved_s(placed));
        }
        double best = 0;
        for (uint32_t set = 0; set < 1u << scene.expert_count(); ++set) {
            double sum = 0;
            uint64_t bytes = 0;
            for (uint32_t x = 0; x < scene.expert_count(); ++x)
                if ((set >> x & 1) != 0)
                    sum += value[x], bytes += scene.expert_bytes[reference.model_of(x)];
            if (bytes <= scene.device_bytes[0]) best = std::max(best, sum);
        }
        for (const char *name : {"slim_dp", "slim_maxconv"}) {
            CAPTURE(name);
            placement_policy policy(name);
            const std::vector<moorage_copy> plan = policy.plan(scene);
            CHECK(plan_fault(scene, plan) == "");
            double sum = 0;
            for (const moorage_copy &copy : plan) sum += value[copy.expert];
            CHECK(sum == doctest::Approx(best).epsilon(1e-12));
            CHECK(policy.facts().at("first_knapsack_s") == doctest::Approx(best).epsilon(1e-12));
        }
    }
}

TEST_CASE("maximum convolution places what dynamic programming places") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 3, shape.experts = 16, shape.layers = 3, shape.room = 6 + seed % 9;
        shape.top_k = {2, 1, 3, 1}, shape.equal_sizes = false;
        shape.devices = 1 + static_cast<uint32_t>(seed % 2);
        placement_scene scene = random_scene(shape, seed);
        // Calls of their own weight, or equal gains would leave a choice.
        std::mt19937_64 generator(seed);
        for (double &share : scene.call_share)
            share = static_cast<double>(generator() >> 11) * 0x1p-53;
        placement_policy programming("slim_dp"), convolution("slim_maxconv");
        CHECK(same(programming.plan(scene), convolution.plan(scene)));
        CHECK(programming.facts().at("first_knapsack_s") ==
              doctest::Approx(convolution.facts().at("first_knapsack_s")).epsilon(1e-12));
    }
}

TEST_CASE("a coarser unit rounds sizes up and still fits") {
    scene_shape shape;
    shape.servers = 2, shape.experts = 12, shape.top_k = {1, 1}, shape.equal_sizes = false;
    placement_scene scene = random_scene(shape, 3);
    scene.expert_bytes = {1009, 977};
    for (uint64_t &bytes : scene.device_bytes) bytes = 8000;
    for (const char *name : {"slim_dp", "slim_maxconv"}) {
        placement_policy coarse(name, {{"units_max", "64"}}), fine(name);
        const std::vector<moorage_copy> plan = coarse.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(coarse.facts().at("guarantee") == 0);
        fine.plan(scene);
        CHECK(fine.facts().at("guarantee") == 0.5);
        CHECK(coarse.facts().at("first_knapsack_s") <= fine.facts().at("first_knapsack_s"));
        CHECK(coarse.facts().at("first_knapsack_s") > 0.8 * fine.facts().at("first_knapsack_s"));
    }
}

TEST_CASE("the guarantees hold against the best of all placements") {
    for (uint64_t seed = 1; seed <= 24; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 1 + static_cast<uint32_t>(seed % 2);
        shape.experts = shape.servers == 1 ? 6 : 5, shape.room = 2, shape.homes = 2;
        shape.top_k = {1 + static_cast<uint32_t>(seed / 2 % 3)};
        placement_scene scene = random_scene(shape, seed);
        const double best = best_saved_s(scene);
        for (const char *name : {"slim_greedy", "slim_dp", "slim_maxconv"}) {
            CAPTURE(name);
            placement_policy policy(name);
            policy.plan(scene);
            const std::map<std::string, double> facts = policy.facts();
            CHECK(facts.at("saved_s") <= best * (1 + 1e-12));
            CHECK(facts.at("saved_s") >= facts.at("guarantee") * best * (1 - 1e-12));
            if (shape.top_k[0] == 1) CHECK(facts.at("guarantee") >= 0.5);
            if (shape.top_k[0] > 1 && facts.contains("curvature")) CHECK(facts.at("curvature") > 0);
        }
    }
}

TEST_CASE("curvature is Definition 4, of a single server by hand") {
    // A first expert saves p (T_C,n - T_E), a last one p (T_C,n + T_n,C + T_C^CP) (Appendix E).
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(1, 3, 2, 10, 1000);
    scene.add_device(scene.add_server(), 20, 0.25);
    scene.add_cloud(1000, 4, 0.125);
    scene.add_home(0), scene.add_call(0, {0, 1}, 0.5), scene.add_call(0, {1, 2}, 0.5);
    placement_policy policy("slim_maxconv");
    policy.plan(scene);
    CHECK(policy.facts().at("curvature") == doctest::Approx(1 - (5 - 0.25) / (5 + 5 + 0.125)));
    CHECK(policy.facts().at("guarantee") == doctest::Approx((5 - 0.25) / (5 + 5 + 0.125)));
}

TEST_CASE("one expert a token: gains only fall; where messages dominate they never are negative") {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 2, shape.experts = 3, shape.homes = 3;
        shape.top_k = {1 + static_cast<uint32_t>(seed % 3)};
        placement_scene scene = random_scene(shape, seed);
        const slim_reference reference(scene);
        const uint32_t places = scene.expert_count() * scene.servers;
        std::vector<double> saved(size_t{1} << places);
        for (uint32_t plan = 0; plan < saved.size(); ++plan) {
            slim_placement placed = reference.empty();
            for (uint32_t place = 0; place < places; ++place)
                if ((plan >> place & 1) != 0)
                    placed[place / scene.expert_count()][place % scene.expert_count()] = place / 3;
            saved[plan] = reference.saved_s(placed);
        }
        for (uint32_t plan = 0; plan < saved.size(); ++plan)
            for (uint32_t a = 0; a < places; ++a)
                for (uint32_t b = 0; b < places; ++b) {
                    const uint32_t with_a = plan | 1u << a, with_b = plan | 1u << b;
                    REQUIRE(saved[with_a] - saved[plan] > -1e-12);
                    if (shape.top_k[0] == 1 && a != b)
                        REQUIRE(saved[with_a] - saved[plan] >=
                                saved[with_a | with_b] - saved[with_b] - 1e-12);
                }
    }
}

TEST_CASE("with different sizes the ratio rule can take 2 where 18 was to be had") {
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(1, 1, 1, 1, 1000), scene.add_model(1, 1, 1, 10, 1000);
    scene.add_device(scene.add_server(), 10);
    scene.add_cloud(1000, 9, 0);  // 20 s there and back
    scene.add_home(0), scene.home_model = {0.1, 0.9};
    scene.add_call(0, {0}, 0.1), scene.add_call(0, {1}, 0.9);
    placement_policy greedy("slim_greedy"), knapsack("slim_maxconv");
    greedy.plan(scene), knapsack.plan(scene);
    CHECK(greedy.facts().at("saved_s") == doctest::Approx(2));
    CHECK(greedy.facts().at("guarantee") == 0);
    CHECK(knapsack.facts().at("saved_s") == doctest::Approx(18));
    placement_policy seconds("slim_greedy", {{"per_byte", "0"}});
    seconds.plan(scene);
    CHECK(seconds.facts().at("saved_s") == doctest::Approx(18));
    CHECK(seconds.facts().at("guarantee") == 0);
}

TEST_CASE("a copy that raises the latency is not made") {
    // Computing takes three times a hop: the second copy of expert 0 would cost (latency_test).
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(1, 2, 2, 10, 1000);
    scene.add_device(scene.add_server(), 10, 3), scene.add_device(scene.add_server(), 20, 3);
    scene.add_link(0, 1, 1000), scene.add_cloud(1000, 100, 1);
    scene.add_home(0), scene.add_call(0, {0, 1}, 1), scene.add_home(1),
        scene.add_call(1, {0, 1}, 1);
    scene.home_tokens_per_s = {1, 100};
    placement_policy greedy("slim_greedy");
    CHECK(same(greedy.plan(scene), {{0, 1}, {1, 1}}));
}

TEST_CASE("baselines by hand") {
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(2, 2, 1, 10, 1000), scene.add_model(1, 2, 1, 25, 1000);
    scene.add_device(scene.add_server(), 30, 0.5), scene.add_device(scene.add_server(), 45, 0.5);
    scene.add_link(0, 1, 1000), scene.add_cloud(1000, 9, 0.25);
    scene.add_home(0, 1, 500, 250), scene.add_home(0, 1, 500, 250), scene.add_home(1, 1, 500, 250);
    scene.home_model = {0.75, 0.25, 1, 0, 0.25, 0.75};
    const auto ask = [&](uint32_t h, std::vector<double> shares) {
        for (uint32_t x = 0; x < 6; ++x)
            if (shares[x] > 0) scene.add_call(h, {x}, shares[x]);
    };
    ask(0, {0.5, 0.25, 0.375, 0.375, 0.25, 0}), ask(1, {0.75, 0.25, 0.5, 0.5, 0, 0});
    ask(2, {0.125, 0.125, 0.25, 0, 0.5, 0.25});
    scene.add_held_expert(0, 0),
        scene.add_held_expert(1, 0);  // so that server 0 is not asked for the favourite
    placement_policy lfu("lfu"), layers("ushape");
    // Server 0: 2 and 3 (0.875 each), 1 (0.5); 4 does not fit. Server 1: 4 (25), then 2 and 0 (10).
    CHECK(same(lfu.plan(scene), {{2, 0}, {3, 0}, {1, 0}, {4, 1}, {2, 1}, {0, 1}}));
    // Server 0: model 0, layer 0 (20 of 30), nothing else fits. Server 1: model 1 does not fit (50
    // of 45), then both layers of model 0.
    CHECK(same(layers.plan(scene), {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 1}, {3, 1}}));
    // Home 0 with model 0: up 2, layer 0 here or there, a hop each way, two layers, down 4. Model 1
    // in the cloud: 2 (9 + 1) + 0.25.
    const double chained = 2 + 4 + 2 + 2 * 0.5, clouded = 2 + 4 + 20 + 0.25;
    const double resident = 2 + 4 + 2 * 0.5;
    CHECK(layers.facts().at("ushape_s") ==
          doctest::Approx(
              (0.75 * chained + 0.25 * clouded + chained + 0.25 * resident + 0.75 * clouded) / 3));
    placement_policy first_seed("random", {}, 7), again("random", {}, 7),
        second_seed("random", {}, 8);
    std::map<uint32_t, int> filled;
    bool differs = false;
    for (int trial = 0; trial < 20; ++trial) {
        const std::vector<moorage_copy> plan = first_seed.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(same(plan, again.plan(scene)));
        differs = differs || !same(plan, second_seed.plan(scene));
        for (const moorage_copy &copy : plan) ++filled[copy.expert];
        CHECK(plan.size() >= 3);  // at least 1 + 2: in any order more fits
    }
    CHECK(differs);
    CHECK(filled.size() == 6);
}

TEST_CASE("without a cloud every expert has a copy or the plan is refused with the remedy") {
    for (const char *name : {"slim_greedy", "slim_dp", "slim_maxconv", "lfu", "random", "ushape"}) {
        CAPTURE(name);
        scene_shape shape;
        shape.servers = 2, shape.top_k = {2}, shape.experts = 6, shape.room = 4;
        placement_scene scene = random_scene(shape, 2);
        scene.cloud_s.clear();
        placement_policy policy(name);
        // Room for 8 copies of 6 experts: the baselines may fill up with copies of few.
        std::string refused;
        try {
            const std::vector<moorage_copy> plan = policy.plan(scene);
            CHECK(plan_fault(scene, plan) == "");
        } catch (const std::runtime_error &error) {
            refused = error.what();
        }
        if (std::string(name).starts_with("slim")) CHECK(refused == "");
        for (uint64_t &bytes : scene.device_bytes) bytes = 20;  // 4 copies of 6 experts
        CHECK_THROWS_WITH_AS(policy.plan(scene), doctest::Contains("add [cluster.cloud]"),
                             std::runtime_error);
    }
}

TEST_CASE("demand without calls, tokens or experts is planned for all the same") {
    placement_scene scene;
    scene.add_model(2, 4, 2, 10, 1000);
    scene.add_device(scene.add_server(), 40), scene.add_device(scene.add_server(), 40);
    scene.add_link(0, 1, 1000), scene.add_cloud(1000, 9, 0);
    scene.add_home(0, 0);
    for (const char *name : {"slim_greedy", "slim_dp", "slim_maxconv", "lfu", "random", "ushape"}) {
        CAPTURE(name);
        placement_policy policy(name);
        CHECK(plan_fault(scene, policy.plan(scene)) == "");
        CHECK(policy.facts().at("saved_s") == 0);
    }
    scene.frequency = {0.5, 0.5, 0.5, 0.5, 0, 1, 1, 0};
    for (const char *name : {"slim_greedy", "slim_dp", "slim_maxconv", "lfu"}) {
        CAPTURE(name);
        placement_policy policy(name);
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(plan.size() >= 4);
        CHECK(policy.facts().at("saved_s") > 0);
    }
}

TEST_CASE("the paper's order on its own setting: greedy and knapsacks, LFU, random") {
    slim_instance instance(slim_full());
    placement_scene &scene = instance.scene;
    std::map<std::string, double> latency;
    for (const char *name : {"slim_greedy", "slim_maxconv", "lfu", "random", "ushape"}) {
        placement_policy policy(name);
        CHECK(plan_fault(scene, policy.plan(scene)) == "");
        latency[name] = policy.facts().at("objective_s");
    }
    CHECK(latency["slim_maxconv"] < 0.9 * latency["lfu"]);
    CHECK(latency["slim_greedy"] < 0.9 * latency["lfu"]);
    CHECK(std::abs(latency["slim_greedy"] / latency["slim_maxconv"] - 1) < 0.02);
    CHECK(latency["lfu"] < latency["random"]);
    CHECK(latency["lfu"] < latency["ushape"]);
}

TEST_CASE("slim_greedy is within one percent of the bound on the Switch family's full instance") {
    for (const uint64_t seed : {1, 2}) {
        slim_setting setting = slim_switch();
        setting.seed = seed;
        slim_instance instance(setting);
        placement_policy policy("slim_greedy");
        CHECK(plan_fault(instance.scene, policy.plan(instance.scene)) == "");
        const double saved = policy.facts().at("saved_s");
        const double bound = slim_bound(instance.scene).saved_s(saved, 200);
        MESSAGE("greedy saves ", 100 * saved / bound, " % of the Lagrangian bound");
        CHECK(saved >= 0.99 * bound);
        CHECK(saved <= bound);
    }
}

}  // namespace slim_policies_test

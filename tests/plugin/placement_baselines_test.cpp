// placement_baselines_test.cpp - uniform, redundance and smartmoe: shares by hand, a naive
// SmartMoE, random placement by its statistics, and the rules of a plan.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "placement_harness.h"

namespace placement_baselines_test {

using namespace moorage::test;

namespace {

// GPUs of each server, all of the same bytes; experts of 10 bytes; demand is 0.
placement_scene scene_of(uint32_t layers, uint32_t experts, const std::vector<int> &gpus,
                         uint64_t bytes) {
    placement_scene scene;
    scene.add_model(layers, experts, 2, 10, 1);
    for (uint32_t server = 0; server < gpus.size(); ++server) {
        scene.add_server();
        for (int gpu = 0; gpu < gpus[server]; ++gpu) scene.add_device(server, bytes, 0.001);
    }
    scene.add_link(0, 0, 0);
    for (uint32_t server = 0; server < gpus.size(); ++server) scene.add_home(server, 1);
    return scene;
}

using shares = std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>>;  // (layer, device)
shares shares_of(const placement_scene &scene, const std::vector<moorage_copy> &plan) {
    shares result;
    for (const moorage_copy &copy : plan)
        result[{copy.expert / scene.experts[0], copy.device}].insert(copy.expert %
                                                                     scene.experts[0]);
    return result;
}

}  // namespace

TEST_CASE("uniform: Prism's testbed, equal blocks of every layer, none twice") {
    // 4 GPUs: 2 experts of Mixtral's 8 each, 16 of DeepSeek-V2-Lite's 64 (Section IV-A).
    for (const uint32_t experts : {8u, 64u}) {
        placement_scene scene = scene_of(26, experts, {1, 1, 2}, 26 * experts / 4 * 10);
        placement_policy policy("uniform");
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(plan.size() == 26 * experts);
        for (const auto &[layer_device, held] : shares_of(scene, plan)) {
            CHECK(held.size() == experts / 4);
            CHECK(*held.begin() == layer_device.second * experts / 4);
            CHECK(*held.rbegin() == (layer_device.second + 1) * experts / 4 - 1);
        }
        placement_policy random("uniform", {{"order", "random"}}, 7);
        const std::vector<moorage_copy> drawn = random.plan(scene);
        CHECK(plan_fault(scene, drawn) == "");
        CHECK(drawn.size() == plan.size());
        CHECK(shares_of(scene, drawn) != shares_of(scene, plan));
        for (const auto &[layer_device, held] : shares_of(scene, drawn))
            CHECK(held.size() == experts / 4);
        CHECK_FALSE(policy.adopt({}));
    }
}

TEST_CASE("uniform: what does not divide goes round the devices") {
    placement_scene scene = scene_of(3, 5, {1, 2}, 1000);
    placement_policy policy("uniform");
    const shares held = shares_of(scene, policy.plan(scene));
    // Blocks of 2, 2, 1 from device 0; then from device 2; then from device 1.
    const shares expected{{{0, 0}, {0, 1}}, {{0, 1}, {2, 3}}, {{0, 2}, {4}},
                          {{1, 2}, {0, 1}}, {{1, 0}, {2, 3}}, {{1, 1}, {4}},
                          {{2, 1}, {0, 1}}, {{2, 2}, {2, 3}}, {{2, 0}, {4}}};
    CHECK(held == expected);
    // Fewer experts than devices: layer 0 on the first, layer 1 on the next ones.
    placement_scene wide = scene_of(2, 2, {2, 2}, 10);
    CHECK(shares_of(wide, policy.plan(wide)) ==
          shares{{{0, 0}, {0}}, {{0, 1}, {1}}, {{1, 2}, {0}}, {{1, 3}, {1}}});
}

TEST_CASE("uniform and smartmoe refuse devices that cannot hold their share") {
    placement_scene scene = scene_of(2, 8, {1, 1}, 200);
    scene.device_bytes = {120, 79};  // plenty in all, but 4 experts of 2 layers take 80
    for (const std::string name : {"uniform", "smartmoe"}) {
        placement_policy policy(name);
        CHECK_THROWS_WITH(policy.plan(scene),
                          "device 1 has 79 bytes for experts, its even share of every layer takes "
                          "80; give it more memory or choose a policy for unequal devices");
    }
    scene.add_cloud(1e6, 0.01, 0.001);
    for (const std::string name : {"uniform", "smartmoe"}) {
        placement_policy policy(name);
        CHECK(policy.plan(scene).size() == 15);
    }
}

TEST_CASE("smartmoe: heaviest first to the least loaded below its share") {
    std::mt19937 generator(3);
    for (int round = 0; round < 200; ++round) {
        const uint32_t gpus = 1 + generator() % 4, per_gpu = 1 + generator() % 4;
        const uint32_t layers = 1 + generator() % 3, experts = gpus * per_gpu;
        placement_scene scene =
            scene_of(layers, experts, std::vector<int>(gpus, 1), layers * per_gpu * 10);
        for (double &frequency : scene.frequency) frequency = (1 + generator() % 64) / 64.0;
        placement_policy policy("smartmoe");
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK_FALSE(policy.decides());  // the host's rule
        const shares held = shares_of(scene, plan);
        std::vector<double> earlier_load(gpus, 0);
        for (uint32_t layer = 0; layer < layers; ++layer) {
            std::set<std::pair<double, uint32_t>> heaviest;
            for (uint32_t e = 0; e < experts; ++e) {
                double load = 0;
                for (uint32_t home = 0; home < gpus; ++home)
                    load += scene.frequency[home * scene.expert_count() + layer * experts + e];
                heaviest.insert({-load, e});
            }
            std::vector<double> load(gpus, 0);
            std::vector<uint32_t> count(gpus, 0);
            for (const auto &[minus, expert] : heaviest) {
                uint32_t best = gpus;
                for (uint32_t gpu = 0; gpu < gpus; ++gpu)
                    if (count[gpu] < per_gpu &&
                        (best == gpus || std::pair(load[gpu], earlier_load[gpu]) <
                                             std::pair(load[best], earlier_load[best])))
                        best = gpu;
                load[best] -= minus;
                ++count[best];
                CHECK(held.at({layer, best}).count(expert) == 1);
            }
            for (uint32_t gpu = 0; gpu < gpus; ++gpu) earlier_load[gpu] += load[gpu];
        }
    }
}

TEST_CASE("smartmoe: experts that do not divide go where memory is left") {
    placement_scene scene = scene_of(2, 5, {1, 1}, 40);
    scene.device_bytes[1] = 60;  // device 0 has room for its shares alone
    for (uint32_t x = 0; x < 10; ++x) scene.frequency[x] = 0.1;
    placement_policy policy("smartmoe");
    const shares held = shares_of(scene, policy.plan(scene));
    for (uint32_t layer = 0; layer < 2; ++layer) {
        CHECK(held.at({layer, 0}).size() == 2);
        CHECK(held.at({layer, 1}).size() == 3);
    }
    scene.device_bytes[1] = 50;
    CHECK_THROWS(policy.plan(scene));
}

TEST_CASE("redundance: everything once, then memory is full, nothing twice on a server") {
    std::mt19937 generator(4);
    for (int round = 0; round < 300; ++round) {
        const uint32_t layers = 1 + generator() % 4, experts = 2 + generator() % 12;
        placement_scene scene =
            scene_of(layers, experts, {1, 1 + static_cast<int>(generator() % 3), 2}, 0);
        uint64_t places = 0;
        for (uint64_t &bytes : scene.device_bytes) {
            bytes = generator() % (10 * scene.expert_count());
            places += bytes / 10;
        }
        placement_policy policy("redundance", {}, static_cast<uint64_t>(round));
        if (places < scene.expert_count()) {
            CHECK_THROWS(policy.plan(scene));
            continue;
        }
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        std::set<std::pair<uint32_t, uint32_t>> on_server;
        std::vector<uint64_t> used(scene.devices(), 0);
        for (const moorage_copy &copy : plan) {
            CHECK(on_server.insert({copy.expert, scene.device_server[copy.device]}).second);
            used[copy.device] += 10;
        }
        for (uint32_t device = 0; device < scene.devices(); ++device) {
            uint64_t server_has = 0;
            for (const auto &[expert, server] : on_server)
                server_has += server == scene.device_server[device];
            CHECK((used[device] + 10 > scene.device_bytes[device] ||
                   server_has == scene.expert_count()));
        }
        CHECK_FALSE(policy.adopt({}));
    }
}

TEST_CASE(
    "redundance: each device equally likely for the one copy, each expert for a further one") {
    placement_scene scene = scene_of(1, 6, {1, 1, 1}, 30);
    std::vector<int> count(18, 0);
    placement_policy policy("redundance", {}, 11);
    const int rounds = 4000;
    for (int round = 0; round < rounds; ++round)
        for (const moorage_copy &copy : policy.plan(scene)) ++count[copy.expert * 3 + copy.device];
    // Three of six on each: a half; 5 standard deviations of 4000 draws are 8 %.
    for (const int copies : count) CHECK(copies == doctest::Approx(rounds / 2.0).epsilon(0.08));
}

}  // namespace placement_baselines_test

// eplb_test.cpp - the load balancer: the published example to the digit, random shapes compared
// with a naive version, copies compared with all distributions, and the rules of a plan on any
// cluster.
#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "eplb_definition.h"
#include "placement_harness.h"
#include "plugins/placement/eplb/algorithm.hpp"

namespace eplb_test {

using namespace moorage::test;
namespace eplb = moorage::eplb;

namespace {

const float_row example[2] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                              {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};

std::vector<uint32_t> rebalance(const float_row &weight, eplb::shape shape,
                                eplb::packing_options extras = {}) {
    std::vector<uint32_t> places(shape.replicas), copies(shape.experts);
    eplb::workspace work;
    eplb::rebalance(weight, shape, places, copies, work, extras);
    std::vector<uint32_t> counted(shape.experts, 0);
    for (const uint32_t expert : places) ++counted[expert];
    CHECK(counted == copies);
    return places;
}

std::vector<int> signed_places(const std::vector<uint32_t> &places) {
    return {places.begin(), places.end()};
}

// Largest over mean load of the GPUs when copies share alike.
double imbalance(const float_row &weight, const std::vector<uint32_t> &places, uint32_t gpus) {
    std::vector<double> copies(weight.size(), 0), load(gpus, 0);
    for (const uint32_t expert : places) ++copies[expert];
    for (size_t i = 0; i < places.size(); ++i)
        load[i * gpus / places.size()] += double{weight[places[i]]} / copies[places[i]];
    return *std::max_element(load.begin(), load.end()) * gpus /
           std::accumulate(load.begin(), load.end(), 0.0);
}

// The example as a cluster: two servers of four GPUs, two places a layer on each.
placement_scene example_scene(uint32_t groups) {
    placement_scene scene;
    scene.add_model(2, 12, 2, 10, 1);
    scene.model_groups[0] = groups;
    for (int server = 0; server < 2; ++server) {
        scene.add_server();
        for (int gpu = 0; gpu < 4; ++gpu)
            scene.add_device(static_cast<uint32_t>(server), 45, 0.001);
    }
    scene.add_link(0, 1, 1e9);
    // The requests come from both servers; only the sums count.
    for (uint32_t home = 0; home < 2; ++home) {
        scene.add_home(home, 256);
        for (uint32_t x = 0; x < 24; ++x)
            scene.frequency[home * 24 + x] =
                static_cast<double>(example[x / 12][x % 12]) / 256 * (home == 0 ? 0.25 : 0.75);
    }
    return scene;
}

using device_set = std::multiset<uint32_t>;
std::vector<device_set> devices_of(const std::vector<moorage_copy> &plan, uint32_t layer) {
    std::vector<device_set> sets(8);
    for (const moorage_copy &copy : plan)
        if (copy.expert / 12 == layer) sets[copy.device].insert(copy.expert % 12);
    return sets;
}

}  // namespace

TEST_CASE("the published example, hierarchical and global") {
    const eplb::shape shape{12, 16, 4, 2, 8};
    CHECK(signed_places(rebalance(example[0], shape)) ==
          std::vector<int>{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1});
    CHECK(signed_places(rebalance(example[1], shape)) ==
          std::vector<int>{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1});
    // A known property of the global policy: both copies of expert 8 on GPU 6 (12 and 13).
    const std::vector<uint32_t> global = rebalance(example[1], {12, 16, 1, 2, 8});
    CHECK(global[12] == 8);
    CHECK(global[13] == 8);
}

TEST_CASE("equal to the naive version on random shapes and loads") {
    std::mt19937 generator(5);
    int hierarchical = 0;
    for (int round = 0; round < 400; ++round) {
        const uint32_t nodes = 1 + generator() % 4, gpus = nodes * (1 + generator() % 4);
        const uint32_t groups = generator() % 2 ? nodes * (1 + generator() % 3) : 1;
        const uint32_t experts = groups * nodes * (1 + generator() % 6);
        const uint32_t replicas = gpus * ((experts + gpus - 1) / gpus + generator() % 3);
        const eplb::shape shape{experts, replicas, groups, nodes, gpus};
        REQUIRE(shape.valid());
        hierarchical += shape.hierarchical() && nodes > 1;
        float_row weight;
        // Small numbers, so that ties are common; now and then a load without any.
        for (uint32_t e = 0; e < experts; ++e)
            weight.push_back(static_cast<float>(generator() % (round % 3 ? 12 : 4000)));
        CHECK(signed_places(rebalance(weight, shape)) ==
              naive_eplb(weight, static_cast<int>(replicas), static_cast<int>(groups),
                         static_cast<int>(nodes), static_cast<int>(gpus)));
    }
    CHECK(hierarchical > 100);
}

TEST_CASE("copies minimise the largest load of a copy, over all distributions") {
    std::mt19937 generator(6);
    for (int round = 0; round < 200; ++round) {
        const size_t experts = 2 + generator() % 3, places = experts + generator() % 6;
        float_row weight(experts);
        eplb::workspace work;
        for (float &load : weight) load = static_cast<float>(1 + generator() % 50);
        std::vector<uint32_t> place(places), copies(experts);
        eplb::replicate(weight, place, copies, work);
        float best = 1e30f;
        std::vector<uint32_t> count(experts, 1);
        const auto try_all = [&](const auto &self, size_t expert, size_t left) -> void {
            if (expert + 1 == experts) {
                count[expert] = static_cast<uint32_t>(1 + left);
                float largest = 0;
                for (size_t e = 0; e < experts; ++e)
                    largest = std::max(largest, weight[e] / static_cast<float>(count[e]));
                best = std::min(best, largest);
                return;
            }
            for (size_t extra_copies = 0; extra_copies <= left; ++extra_copies) {
                count[expert] = static_cast<uint32_t>(1 + extra_copies);
                self(self, expert + 1, left - extra_copies);
            }
        };
        try_all(try_all, 0, places - experts);
        CHECK(*std::max_element(work.copy_load.begin(), work.copy_load.end()) == best);
        CHECK(std::accumulate(copies.begin(), copies.end(), size_t{0}) == places);
    }
}

TEST_CASE("refinement evens out, never worse, places and copies as before") {
    std::mt19937 generator(7);
    int better = 0;
    for (int round = 0; round < 60; ++round) {
        const eplb::shape shape{64, 80, 8, 4, 16};
        float_row weight(64);
        for (float &load : weight)
            load = 1000.0f / static_cast<float>(1 + generator() % (round % 2 ? 20 : 200));
        std::vector<uint32_t> published = rebalance(weight, shape),
                              refined = rebalance(weight, shape, {false, 100});
        const double was = imbalance(weight, published, 16), is = imbalance(weight, refined, 16);
        CHECK(is <= was + 1e-9);
        better += is < was - 1e-6;
        // Each node has the same copies in another order.
        for (size_t node = 0; node < 4; ++node) {
            const auto first = static_cast<std::ptrdiff_t>(node * 20);
            std::sort(published.begin() + first, published.begin() + first + 20);
            std::sort(refined.begin() + first, refined.begin() + first + 20);
        }
        CHECK(published == refined);
    }
    CHECK(better > 20);
}

TEST_CASE("a plan on equal devices is the published one") {
    for (const uint32_t groups : {4u, 1u}) {
        placement_scene scene = example_scene(groups);
        placement_policy policy("eplb");
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(plan.size() == 32);
        CHECK(policy.facts().at("published_share") == 1);
        CHECK_FALSE(policy.decides());  // the host's rule
        for (uint32_t layer = 0; layer < 2; ++layer) {
            const index_row places = naive_eplb(example[layer], 16, static_cast<int>(groups), 2, 8);
            const std::vector<device_set> sets = devices_of(plan, layer);
            std::vector<uint32_t> flat, published(places.begin(), places.end());
            bool doubled = false;
            for (size_t gpu = 0; gpu < 8; ++gpu) {
                CHECK(sets[gpu].size() == 2);
                flat.insert(flat.end(), sets[gpu].begin(), sets[gpu].end());
                doubled |= places[2 * gpu] == places[2 * gpu + 1];
            }
            if (!doubled) {
                for (size_t gpu = 0; gpu < 8; ++gpu)
                    CHECK(sets[gpu] == device_set{published[2 * gpu], published[2 * gpu + 1]});
                continue;
            }
            // The same copies, in another order and as even but for 1 %: two places a GPU leave
            // little choice.
            CHECK(groups == 1);
            CHECK(imbalance(example[layer], flat, 8) <=
                  imbalance(example[layer], published, 8) * 1.01);
            std::sort(flat.begin(), flat.end());
            std::sort(published.begin(), published.end());
            CHECK(flat == published);
        }
    }
}

TEST_CASE("copies that share a GPU are exchanged, and the loads are as even as published") {
    std::mt19937 generator(10);
    int shared = 0, evener = 0;
    for (int round = 0; round < 100; ++round) {
        const eplb::shape shape{32, 48, 1, 1, 8};
        float_row weight(32);
        for (float &load : weight) load = 1000.0f / static_cast<float>(1 + generator() % 100);
        const auto doubled = [](const std::vector<uint32_t> &places) {
            int count = 0;
            for (size_t gpu = 0; gpu < 8; ++gpu) {
                const auto first = places.begin() + static_cast<std::ptrdiff_t>(6 * gpu);
                count += 6 - static_cast<int>(std::set<uint32_t>(first, first + 6).size());
            }
            return count;
        };
        std::vector<uint32_t> published = rebalance(weight, shape),
                              exchanged = rebalance(weight, shape, {true});
        if (doubled(published) == 0) {
            CHECK(published == exchanged);
            continue;
        }
        CHECK(doubled(exchanged) == 0);
        bool more_than_gpus = false;
        for (uint32_t expert = 0; expert < 32; ++expert)
            more_than_gpus |= std::count(published.begin(), published.end(), expert) > 8;
        if (more_than_gpus) continue;
        ++shared;
        evener += imbalance(weight, exchanged, 8) <= imbalance(weight, published, 8) + 1e-6;
        std::sort(published.begin(), published.end());
        std::sort(exchanged.begin(), exchanged.end());
        CHECK(published == exchanged);
    }
    MESSAGE(shared << " of 100 had copies that share a GPU; " << evener << " are as even after it");
    CHECK(shared > 20);
    CHECK(evener > shared * 9 / 10);
}

TEST_CASE("a second copy on a device makes place for the largest load per copy") {
    placement_scene scene = example_scene(1);
    placement_policy replaces("eplb", {{"duplicates", "replace"}}),
        drops("eplb", {{"duplicates", "drop"}});
    const auto replaced = devices_of(replaces.plan(scene), 1);
    const auto dropped = devices_of(drops.plan(scene), 1);
    CHECK(dropped[6] == device_set{8});
    // Experts 5, 6 and 7 have two copies. Expert 8 has one now, on GPU 6. Among the others, with
    // one copy each, 1 has the largest load: 107.
    CHECK(replaced[6] == device_set{1, 8});
    for (size_t gpu : {0, 1, 2, 3, 4, 5, 7}) CHECK(replaced[gpu] == dropped[gpu]);
}

TEST_CASE("replicas, and places that do not divide by the layers") {
    placement_scene scene = example_scene(4);
    for (uint64_t &bytes : scene.device_bytes) bytes = 55;  // five places for two layers
    placement_policy published("eplb"), filled("eplb", {{"leftover", "fill"}});
    CHECK(published.plan(scene).size() == 32);
    const auto copies = filled.plan(scene);
    CHECK(plan_fault(scene, copies) == "");
    CHECK(copies.size() == 40);
    for (uint64_t &bytes : scene.device_bytes) bytes = 65;
    placement_policy fewer("eplb", {{"replicas", "17"}});
    CHECK(fewer.plan(scene).size() == 32);
    CHECK(placement_policy("eplb").plan(scene).size() == 48);
    placement_policy too_few("eplb", {{"replicas", "11"}});
    CHECK_THROWS_WITH(too_few.plan(scene),
                      "replicas = 11 is below the 12 experts of a layer; raise it or set it to 0");
}

TEST_CASE("unequal devices: coverage and memory always hold, fast devices do more") {
    std::mt19937 generator(8);
    for (int round = 0; round < 400; ++round) {
        placement_scene scene;
        const uint32_t layers = 1 + generator() % 4, experts = 4 * (1 + generator() % 4);
        scene.add_model(layers, experts, 2, 3, 1);
        scene.model_groups[0] = round % 2 ? 4 : 1;
        const uint32_t more_layers = 1 + generator() % 2, more_experts = 2 + generator() % 5;
        if (round % 5 == 0) scene.add_model(more_layers, more_experts, 1, 7, 1);
        uint64_t needed = 0;
        for (uint32_t m = 0; m < scene.models(); ++m)
            needed += uint64_t{scene.layers[m]} * scene.experts[m] * scene.expert_bytes[m];
        const uint32_t servers = 1 + generator() % 4;
        uint64_t places = 0;
        for (uint32_t server = 0; server < servers; ++server) scene.add_server();
        for (uint32_t server = 0; server < servers; ++server)
            for (uint32_t gpu = 0; gpu < 1 + generator() % 3 ||
                                   (server + 1 == servers && places < needed + 40 * servers);
                 ++gpu) {
                const uint64_t bytes = 20 + generator() % 120;
                scene.add_device(server, bytes, 0.001 * (1 + generator() % 4));
                places += bytes;
            }
        scene.add_link(0, 0, 0);
        for (uint32_t home = 0; home < servers; ++home) {
            scene.add_home(home, 1 + generator() % 5);
            for (uint32_t m = 0; m < scene.models(); ++m)
                scene.home_model[home * scene.models() + m] = 1.0 / scene.models();
            for (uint32_t x = 0; x < scene.expert_count(); ++x)
                scene.frequency[home * scene.expert_count() + x] = (generator() % 100) / 100.0;
        }
        placement_policy policy("eplb", {{"leftover", round % 3 ? "empty" : "fill"}});
        CHECK(plan_fault(scene, policy.plan(scene)) == "");
    }
}

TEST_CASE("load goes by speed, places by memory") {
    placement_scene scene;
    scene.add_model(1, 64, 2, 1, 1);
    scene.add_server();
    scene.add_device(0, 40, 0.001);
    scene.add_device(0, 40, 0.003);
    scene.add_device(0, 35, 0.001);
    scene.add_link(0, 0, 0);
    scene.add_home(0, 1);
    std::mt19937 generator(9);
    for (double &frequency : scene.frequency) frequency = (1 + generator() % 100) / 100.0;
    placement_policy policy("eplb");
    const std::vector<moorage_copy> plan = policy.plan(scene);
    CHECK(plan_fault(scene, plan) == "");
    std::vector<double> copies(64, 0), load(3, 0);
    for (const moorage_copy &copy : plan) ++copies[copy.expert];
    for (const moorage_copy &copy : plan)
        load[copy.device] += scene.frequency[copy.expert] / copies[copy.expert];
    const double sum = load[0] + load[1] + load[2];
    CHECK(load[0] / sum == doctest::Approx(3.0 / 7).epsilon(0.1));
    CHECK(load[1] / sum == doctest::Approx(1.0 / 7).epsilon(0.2));
    CHECK(load[2] / sum == doctest::Approx(3.0 / 7).epsilon(0.1));
}

TEST_CASE("many devices of different speed and memory: none a third slower than even") {
    std::mt19937 generator(11);
    placement_scene scene;
    const uint32_t experts = 32, devices = 24;
    scene.add_model(4, experts, 2, 1, 1);
    for (uint32_t server = 0; server < devices; ++server) scene.add_server();
    std::vector<double> call_s;
    for (uint32_t server = 0; server < devices; ++server) {
        call_s.push_back(0.001 * (1 + server % 3));
        scene.add_device(server, 4 * (6 + generator() % 8), call_s.back());
    }
    scene.add_link(0, 1, 1e9);
    scene.add_home(0, 1);
    for (double &frequency : scene.frequency) frequency = 1.0 / (1 + generator() % 32);
    placement_policy policy("eplb");
    const std::vector<moorage_copy> plan = policy.plan(scene);
    CHECK(plan_fault(scene, plan) == "");
    double fast = 0, total = 0;
    for (uint32_t layer = 0; layer < 4; ++layer) {
        std::vector<double> copies(experts, 0), time(devices, 0);
        double load = 0, speed = 0;
        for (const moorage_copy &copy : plan)
            if (copy.expert / experts == layer) ++copies[copy.expert % experts];
        for (const moorage_copy &copy : plan)
            if (copy.expert / experts == layer)
                time[copy.device] += scene.frequency[copy.expert] / copies[copy.expert % experts] *
                                     call_s[copy.device];
        for (uint32_t device = 0; device < devices; ++device) {
            load += time[device] / call_s[device];
            speed += 1 / call_s[device];
            fast += device % 3 == 0 ? time[device] / call_s[device] : 0;
        }
        total += load;
        CHECK(*std::max_element(time.begin(), time.end()) <= 1.33 * load / speed);
    }
    CHECK(fast / total == doctest::Approx(6.0 / 11).epsilon(0.1));  // 1 : 1/2 : 1/3
}

TEST_CASE("groups stay together on unequal servers, as many as there is room for") {
    placement_scene scene;
    scene.add_model(2, 12, 2, 1, 1);
    scene.model_groups[0] = 4;
    scene.add_server(), scene.add_server();
    scene.add_device(0, 2 * 9, 0.001);  // three groups
    scene.add_device(1, 2 * 4, 0.001);  // one
    scene.add_link(0, 1, 1e9);
    scene.add_home(0, 1);
    for (uint32_t x = 0; x < 24; ++x) scene.frequency[x] = example[x / 12][x % 12] / 256.0;
    placement_policy policy("eplb");
    const std::vector<moorage_copy> plan = policy.plan(scene);
    CHECK(plan_fault(scene, plan) == "");
    std::map<uint32_t, std::set<uint32_t>> devices;  // of each group of each layer
    for (const moorage_copy &copy : plan) devices[copy.expert / 3].insert(copy.device);
    CHECK(devices.size() == 8);
    for (const auto &[group, group_devices] : devices) CHECK(group_devices.size() == 1);
    placement_policy global("eplb", {{"policy", "global"}});
    CHECK(plan_fault(scene, global.plan(scene)) == "");
}

TEST_CASE("no plan without room; with a cloud the heaviest") {
    placement_scene scene;
    scene.add_model(1, 6, 1, 10, 1);
    scene.add_server();
    scene.add_device(0, 45);
    scene.add_link(0, 0, 0);
    scene.add_home(0, 1);
    for (uint32_t x = 0; x < 6; ++x) scene.frequency[x] = 0.1 * (1 + x);
    placement_policy policy("eplb");
    CHECK_THROWS_WITH(policy.plan(scene),
                      "the devices hold 4 of the 6 experts; give them more memory or a cloud");
    scene.add_cloud(1e6, 0.01, 0.001);
    std::set<uint32_t> held;
    for (const moorage_copy &copy : policy.plan(scene)) held.insert(copy.expert);
    CHECK(held == std::set<uint32_t>{2, 3, 4, 5});
}

}  // namespace eplb_test

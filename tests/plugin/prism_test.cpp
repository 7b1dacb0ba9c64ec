// prism_test.cpp - Prism compared with a naive version decision by decision, the cases in which the
// printed pseudo-code fails, the optimum of Eq. 2 by brute force, and Eq. 4 by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>

#include "placement_harness.h"
#include "plugins/placement/prism/prism_algorithm.hpp"
#include "prism_definition.h"

namespace prism_test {

using namespace moorage::test;
namespace prism = moorage::prism;

namespace {

// An instance as the algorithms want it; keeps the array.
struct prism_problem {
    std::vector<double> flat;
    prism::problem input;

    explicit prism_problem(const prism_instance &instance) {
        for (const auto &server : instance.frequency)
            for (const auto &layer : server) flat.insert(flat.end(), layer.begin(), layer.end());
        input.servers = static_cast<uint32_t>(instance.servers());
        input.layers = static_cast<uint32_t>(instance.layers());
        input.experts = static_cast<uint32_t>(instance.experts());
        input.frequency = flat.data();
        input.stride = size_t{input.layers} * input.experts;
        input.slots.assign(instance.slots.begin(), instance.slots.end());
        input.memory = instance.memory;
    }
    prism_problem(const prism_problem &) = delete;
};

count_table table(const prism_instance &instance, const std::vector<uint32_t> &counts) {
    count_table result;
    for (auto row = counts.begin(); row != counts.end(); row += instance.layers())
        result.emplace_back(row, row + instance.layers());
    return result;
}

held_table held_of(const prism_instance &instance, const prism::assignment &placed) {
    held_table result(instance.frequency.size(),
                      std::vector<std::set<int>>(instance.frequency[0].size()));
    for (uint32_t n = 0; n < result.size(); ++n)
        for (uint32_t l = 0; l < result[n].size(); ++l)
            for (uint32_t e = 0; e < static_cast<uint32_t>(instance.experts()); ++e)
                if (placed.holds(n, l, e)) result[n][l].insert(static_cast<int>(e));
    return result;
}

// Whole numbers, so that ties are common; some layers without activations.
prism_instance random_instance(std::mt19937 &generator, int servers_max, int layers_max,
                               int experts_max) {
    const auto up_to = [&](int most) {
        return 1 + static_cast<int>(generator() % static_cast<uint32_t>(most));
    };
    prism_instance instance;
    const int servers = up_to(servers_max), layers = up_to(layers_max),
              experts = up_to(experts_max);
    const uint32_t largest = generator() % 3 ? 200 : 4;
    for (int n = 0; n < servers; ++n) {
        instance.frequency.emplace_back();
        for (int l = 0; l < layers; ++l) {
            std::vector<double> row;
            const bool silent = generator() % 12 == 0;
            for (int e = 0; e < experts; ++e)
                row.push_back(silent ? 0 : static_cast<double>(generator() % largest));
            instance.frequency.back().push_back(row);
        }
        instance.slots.push_back(static_cast<int>(
            generator() % static_cast<uint32_t>(2 * layers * experts / servers + 2)));
        instance.memory.push_back(100 * static_cast<uint64_t>(instance.slots.back()) +
                                  generator() % 100);
    }
    return instance;
}

int places_of(const prism_instance &instance) {
    int sum = 0;
    for (const int slots : instance.slots)
        sum += std::min(slots, instance.layers() * instance.experts());
    return sum;
}

void check_invariants(const prism_instance &instance, const count_table &counts,
                      const held_table &held) {
    for (int n = 0; n < instance.servers(); ++n) {
        int used = 0;
        for (int l = 0; l < instance.layers(); ++l) {
            CHECK(counts[static_cast<size_t>(n)][static_cast<size_t>(l)] <= instance.experts());
            used += static_cast<int>(held[static_cast<size_t>(n)][static_cast<size_t>(l)].size());
        }
        CHECK(used <= instance.slots[static_cast<size_t>(n)]);
    }
    for (int l = 0; l < instance.layers(); ++l) {
        CHECK(naive_total(counts, l) >= instance.experts());
        for (int e = 0; e < instance.experts(); ++e) CHECK(naive_copies(held, l, e) >= 1);
    }
}

// One model on servers of given GPUs, bytes each; the demand of one home each.
placement_scene scene_of(const prism_instance &instance, uint64_t expert_bytes,
                         const std::vector<std::vector<uint64_t>> &gpus) {
    placement_scene scene;
    scene.add_model(static_cast<uint32_t>(instance.layers()),
                    static_cast<uint32_t>(instance.experts()), 1, expert_bytes, 1);
    for (uint32_t n = 0; n < gpus.size(); ++n) {
        scene.add_server();
        for (const uint64_t bytes : gpus[n]) scene.add_device(n, bytes, 0.001);
    }
    scene.add_link(0, 0, 0);
    for (uint32_t n = 0; n < gpus.size(); ++n) {
        scene.add_home(n, 1024);
        for (uint32_t x = 0; x < scene.expert_count(); ++x)
            scene.frequency[n * scene.expert_count() + x] =
                instance.f(static_cast<int>(n), static_cast<int>(x) / instance.experts(),
                           static_cast<int>(x) % instance.experts()) /
                1024;
    }
    return scene;
}

held_table held_of(const prism_instance &instance, const placement_scene &scene,
                   const std::vector<moorage_copy> &plan) {
    held_table result(instance.frequency.size(),
                      std::vector<std::set<int>>(instance.frequency[0].size()));
    const auto experts = static_cast<uint32_t>(instance.experts());
    for (const moorage_copy &copy : plan)
        result[scene.device_server[copy.device]][copy.expert / experts].insert(
            static_cast<int>(copy.expert % experts));
    return result;
}

}  // namespace

TEST_CASE("logarithm and entropy") {
    std::mt19937_64 generator(1);
    for (int i = 0; i < 20000; ++i) {
        const double x = std::ldexp(1 + static_cast<double>(generator() >> 12) * 0x1p-52,
                                    static_cast<int>(generator() % 200) - 150);
        CHECK(prism::log2_of(x) == doctest::Approx(std::log2(x)).epsilon(1e-15));
    }
    for (int n = -60; n < 60; ++n) CHECK(prism::log2_of(std::ldexp(1.0, n)) == n);
    const std::vector<double> flat(8, 3.0), single{0, 5, 0}, none(4, 0.0), skewed{1, 3};
    CHECK(prism::entropy(flat) == 3);
    CHECK(prism::entropy(single) == 0);
    CHECK(prism::entropy(none) == 0);
    CHECK(prism::entropy(skewed) == doctest::Approx(2 - 0.75 * std::log2(3.0)));
}

TEST_CASE("equal to the naive version, coverage and bounds hold, infeasible is said") {
    std::mt19937 generator(2);
    int feasible = 0, refused = 0, rebalanced = 0;
    uint64_t replaced = 0;
    for (int round = 0; round < 3000; ++round) {
        const prism_instance instance = random_instance(generator, 5, 4, 8);
        const prism_problem problem(instance);
        const auto expected = naive_counts(instance);
        CHECK(expected.has_value() ==
              (places_of(instance) >= instance.layers() * instance.experts()));
        if (!expected) {
            CHECK_THROWS_AS(prism::layer_counts(problem.input).allocate(), std::invalid_argument);
            ++refused;
            continue;
        }
        const std::vector<uint32_t> counts = prism::layer_counts(problem.input).allocate();
        REQUIRE(table(instance, counts) == *expected);
        prism::assignment placed(problem.input, counts);
        held_table held = naive_assign(instance, *expected);
        REQUIRE(held_of(instance, placed) == held);
        check_invariants(instance, *expected, held);
        replaced += placed.replaced();
        placed.fill();
        naive_fill(instance, held);
        REQUIRE(held_of(instance, placed) == held);
        CHECK(prism::remote_calls(problem.input, placed) ==
              doctest::Approx(naive_remote(instance, held)).epsilon(1e-12));
        ++feasible;
        prism_problem bare(instance);
        bare.input.cover = false;
        rebalanced += prism::layer_counts(bare.input).allocate() != counts;
    }
    CHECK(feasible > 1000);
    CHECK(refused > 500);
    CHECK(rebalanced > 300);
    CHECK(replaced > 1000);
}

TEST_CASE("where the printed Algorithm 1 loops forever") {
    // Three servers of 3 slots, two flat layers of 4: all floors are 1, the largest layer starves.
    prism_instance instance;
    instance.frequency.assign(3, {{1, 1, 1, 1}, {1, 1, 1, 1}});
    instance.slots = {3, 3, 3};
    instance.memory = {3, 3, 3};
    const prism_problem problem(instance);
    const std::vector<uint32_t> counts = prism::layer_counts(problem.input).allocate();
    CHECK(table(instance, counts) == count_table{{2, 1}, {1, 2}, {1, 1}});
    const prism::assignment placed(problem.input, counts);
    check_invariants(instance, table(instance, counts), held_of(instance, placed));
}

TEST_CASE("where the printed Algorithm 1 leaves a layer uncovered") {
    // Two servers of 4, entropies 2 and 1: floors 2 and 1 each; printed, layer 0 ends with 2.
    prism_instance instance;
    instance.frequency.assign(2, {{1, 1, 1, 1}, {1, 1, 0, 0}});
    instance.slots = {4, 4};
    instance.memory = {4, 4};
    const prism_problem problem(instance);
    const std::vector<uint32_t> counts = prism::layer_counts(problem.input).allocate();
    CHECK(table(instance, counts) == count_table{{2, 2}, {2, 2}});
    check_invariants(instance, table(instance, counts),
                     held_of(instance, prism::assignment(problem.input, counts)));
}

TEST_CASE("no layer gets more places of a server than it has experts") {
    prism_instance instance;
    instance.frequency.assign(2, {{1, 1, 1, 1}, {1, 0, 0, 0}});
    instance.slots = {7, 7};  // all of it would go to layer 0
    instance.memory = {7, 7};
    const prism_problem problem(instance);
    const std::vector<uint32_t> counts = prism::layer_counts(problem.input).allocate();
    CHECK(table(instance, counts) ==
          count_table{{2, 2}, {2, 2}});  // 4 and 0 each before rebalancing
    prism::assignment placed(problem.input, counts);
    check_invariants(instance, table(instance, counts), held_of(instance, placed));
    // The places that the cap left free have room for all requested experts.
    placed.fill();
    CHECK(prism::remote_calls(problem.input, placed) == 0);
}

TEST_CASE("slots are whole experts on each GPU") {
    // 1.5 + 1.5 experts hold two, not three.
    prism_instance instance;
    instance.frequency.assign(2, {{4, 3, 2, 1}});
    placement_scene scene = scene_of(instance, 10, {{15, 15}, {15, 15}});
    placement_policy policy("prism");
    const std::vector<moorage_copy> plan = policy.plan(scene);
    CHECK(plan_fault(scene, plan) == "");
    CHECK(plan.size() == 4);
    scene.device_bytes[3] = 9;
    CHECK_THROWS_WITH(policy.plan(scene),
                      "the devices hold 3 of the 4 experts; give them more memory or a cloud");
}

TEST_CASE("through the interface: the naive plan, heaviest first on the least loaded GPU") {
    std::mt19937 generator(3);
    int planned = 0;
    for (int round = 0; round < 300; ++round) {
        prism_instance instance = random_instance(generator, 4, 3, 8);
        std::vector<std::vector<uint64_t>> gpus;
        for (size_t n = 0; n < instance.frequency.size(); ++n) {
            instance.slots[n] = 0, instance.memory[n] = 0;
            gpus.emplace_back();
            for (uint32_t gpu = 0; gpu < 1 + generator() % 3; ++gpu) {
                const uint64_t tens = 1 + generator() % 9;
                gpus.back().push_back(10 * tens + generator() % 10);
                instance.slots[n] += static_cast<int>(gpus.back().back() / 10);
                instance.memory[n] += gpus.back().back();
            }
        }
        placement_scene scene = scene_of(instance, 10, gpus);
        const auto counts = naive_counts(instance);
        const bool fill = round % 2 == 0;
        placement_policy policy("prism", {{"leftover", fill ? "fill" : "empty"}});
        if (!counts) {
            CHECK_THROWS(policy.plan(scene));
            continue;
        }
        ++planned;
        held_table held = naive_assign(instance, *counts);
        if (fill) naive_fill(instance, held);
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(held_of(instance, scene, plan) == held);
        CHECK(policy.facts().at("remote_calls_per_s") ==
              doctest::Approx(naive_remote(instance, held)));
        // Devices.
        std::map<std::pair<uint32_t, uint32_t>, bool> placed_pairs;
        for (const moorage_copy &copy : plan) placed_pairs[{copy.expert, copy.device}] = true;
        uint32_t first = 0;
        for (size_t n = 0; n < gpus.size(); ++n) {
            std::vector<double> load(gpus[n].size(), 0);
            std::vector<uint64_t> room;
            for (const uint64_t bytes : gpus[n]) room.push_back(bytes / 10);
            std::set<std::tuple<double, int>> heaviest;
            for (int l = 0; l < instance.layers(); ++l)
                for (const int e : held[n][static_cast<size_t>(l)])
                    heaviest.insert(
                        {-instance.f(static_cast<int>(n), l, e), l * instance.experts() + e});
            for (const auto &[minus, expert] : heaviest) {
                size_t best = load.size();
                for (size_t gpu = 0; gpu < load.size(); ++gpu)
                    if (room[gpu] > 0 && (best == load.size() || load[gpu] < load[best]))
                        best = gpu;
                --room[best];
                load[best] -= minus;
                CHECK(placed_pairs.count({static_cast<uint32_t>(expert),
                                          first + static_cast<uint32_t>(best)}) == 1);
            }
            first += static_cast<uint32_t>(gpus[n].size());
        }
    }
    CHECK(planned > 100);
}

TEST_CASE("never below the optimum of Eq. 2, and how far above") {
    std::mt19937 generator(4);
    double gap_sum = 0, gap_most = 0, empty_sum = 0;
    int count = 0, best = 0;
    while (count < 400) {
        const prism_instance instance = random_instance(generator, 3, 2, 3);
        const auto counts = naive_counts(instance);
        if (!counts) continue;
        const int experts = instance.layers() * instance.experts();
        // All plans that fill each server's memory.
        std::vector<std::vector<std::pair<uint32_t, double>>> sets(instance.frequency.size());
        double total = 0;
        for (int n = 0; n < instance.servers(); ++n)
            for (uint32_t set = 0; set < 1u << experts; ++set) {
                if (std::popcount(set) != std::min(instance.slots[static_cast<size_t>(n)], experts))
                    continue;
                double cost = 0;
                for (int x = 0; x < experts; ++x)
                    if (!(set >> x & 1))
                        cost += instance.f(n, x / instance.experts(), x % instance.experts());
                sets[static_cast<size_t>(n)].push_back({set, cost});
            }
        for (const auto &server : instance.frequency)
            for (const auto &layer : server)
                for (const double f : layer) total += f;
        double optimum = 1e300;
        const auto choose = [&](const auto &self, size_t n, uint32_t covered, double cost) -> void {
            if (n == sets.size()) {
                if (covered == (1u << experts) - 1) optimum = std::min(optimum, cost);
                return;
            }
            for (const auto &[set, set_cost] : sets[n])
                if (cost + set_cost < optimum) self(self, n + 1, covered | set, cost + set_cost);
        };
        choose(choose, 0, 0, 0);
        const prism_problem problem(instance);
        prism::assignment placed(problem.input, prism::layer_counts(problem.input).allocate());
        const double empty = prism::remote_calls(problem.input, placed);
        placed.fill();
        const double filled = prism::remote_calls(problem.input, placed);
        CHECK(filled >= optimum - 1e-9);
        CHECK(empty >= filled - 1e-9);
        if (!(optimum > 0)) continue;  // all fits
        ++count;
        best += filled <= optimum + 1e-9;
        gap_sum += (filled - optimum) / total;
        empty_sum += (empty - optimum) / total;
        gap_most = std::max(gap_most, (filled - optimum) / total);
    }
    MESSAGE("above the optimum, share of all activations: mean "
            << gap_sum / count << ", most " << gap_most << ", none in " << best << " of " << count
            << "; without leftover " << empty_sum / count);
    CHECK(gap_sum / count < 0.1);
}

TEST_CASE("where everything fits everywhere nothing is remote") {
    std::mt19937 generator(5);
    for (int round = 0; round < 50; ++round) {
        prism_instance instance = random_instance(generator, 4, 3, 8);
        for (int &slots : instance.slots) slots = instance.layers() * instance.experts();
        const prism_problem problem(instance);
        prism::assignment placed(problem.input, prism::layer_counts(problem.input).allocate());
        placed.fill();
        CHECK(prism::remote_calls(problem.input, placed) == 0);
    }
}

TEST_CASE("servers with different tastes: fewest remote calls of all, 20 of 20") {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
        std::mt19937 generator(seed);
        const int layers = 6, experts = 32;
        prism_instance instance;
        for (int n = 0; n < 3; ++n) {
            instance.frequency.emplace_back();
            for (int l = 0; l < layers; ++l) {
                std::vector<double> row;
                for (int rank = 1; rank <= experts; ++rank) row.push_back(std::pow(rank, -1.5));
                std::shuffle(row.begin(), row.end(), generator);
                instance.frequency.back().push_back(row);
            }
        }
        // One, one and two GPUs (Prism, Section IV-A), each with 40 % of the experts.
        const uint64_t bytes = layers * experts * 10 * 4 / 10;
        placement_scene scene = scene_of(instance, 10, {{bytes}, {bytes}, {bytes, bytes}});
        std::map<std::string, double> remote;
        for (const std::string name : {"prism", "uniform", "redundance", "smartmoe", "eplb"}) {
            placement_policy policy(name, {}, seed);
            const std::vector<moorage_copy> plan = policy.plan(scene);
            CHECK(plan_fault(scene, plan) == "");
            remote[name] = naive_remote(instance, held_of(instance, scene, plan));
        }
        for (const auto &[name, calls] : remote)
            if (name != "prism") CHECK(remote["prism"] < calls);
    }
}

TEST_CASE("homes of one server count together, what they hold themselves does not") {
    prism_instance instance;
    instance.frequency = {{{8, 4, 2, 1}}, {{1, 1, 1, 5}}};
    placement_scene whole_homes = scene_of(instance, 10, {{20}, {20}});
    placement_scene split_homes = whole_homes;
    split_homes.add_home(1, 1024);
    for (uint32_t x = 0; x < 4; ++x) {
        split_homes.frequency[8 + x] = split_homes.frequency[4 + x] * 0.75;
        split_homes.frequency[4 + x] *= 0.25;
    }
    placement_policy policy("prism");
    const auto same = [](const std::vector<moorage_copy> &a, const std::vector<moorage_copy> &b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                          [](const moorage_copy &x, const moorage_copy &y) {
                              return x.expert == y.expert && x.device == y.device;
                          });
    };
    CHECK(same(policy.plan(whole_homes), policy.plan(split_homes)));
    // Home 0 has experts 0 and 1 itself: its server keeps 2 and 3.
    whole_homes.add_held_expert(0, 0), whole_homes.add_held_expert(0, 1);
    whole_homes.add_cloud(1e6, 0, 0);
    CHECK(held_of(instance, whole_homes, policy.plan(whole_homes))[0][0] == std::set<int>{2, 3});
}

TEST_CASE("with a cloud nothing needs a copy, unless asked for") {
    prism_instance instance;
    instance.frequency.assign(2, {{9, 8, 1, 1}});
    placement_scene scene = scene_of(instance, 10, {{20}, {20}});
    scene.add_cloud(1e6, 0.01, 0.001);
    placement_policy policy("prism"), covering("prism", {{"cover", "always"}});
    for (const auto &server : held_of(instance, scene, policy.plan(scene)))
        CHECK(server[0] == std::set<int>{0, 1});
    scene.cloud_s.clear();
    CHECK(plan_fault(scene, policy.plan(scene)) == "");
    scene.add_cloud(1e6, 0.01, 0.001);
    const auto covered = covering.plan(scene);
    scene.cloud_s.clear();
    CHECK(plan_fault(scene, covered) == "");
}

TEST_CASE("memory of two models by tokens and entropy") {
    // Both flat over 8 experts, 3 bits, equally many tokens: half of 120 bytes each.
    placement_scene scene;
    scene.add_model(1, 8, 1, 10, 1);
    scene.add_model(1, 8, 1, 20, 1);
    scene.add_server();
    scene.add_device(0, 120);
    scene.add_link(0, 0, 0);
    scene.add_cloud(1e6, 0.01, 0.001);
    scene.add_home(0, 10);
    scene.home_model = {0.5, 0.5};
    for (uint32_t x = 0; x < 16; ++x) scene.frequency[x] = 1.0 / 16;
    const auto counts = [&] {
        placement_policy policy("prism");
        std::vector<int> copies(2, 0);
        for (const moorage_copy &copy : policy.plan(scene)) ++copies[copy.expert / 8];
        return copies;
    };
    CHECK(counts() == std::vector<int>{6, 3});
    scene.home_model = {0.75, 0.25};  // 90 and 30: 8 (all) and 1, then 20 left: 2
    for (uint32_t x = 0; x < 16; ++x) scene.frequency[x] = (x < 8 ? 0.75 : 0.25) / 8;
    CHECK(counts() == std::vector<int>{8, 2});
}

TEST_CASE("several models: coverage and memory hold where a plan is made") {
    std::mt19937 generator(6);
    int planned = 0;
    for (int round = 0; round < 400; ++round) {
        placement_scene scene;
        uint64_t needs = 0;
        for (uint32_t m = 0; m < 2 + generator() % 2; ++m) {
            const uint32_t layers = 1 + generator() % 3, experts = 2 + generator() % 6;
            scene.add_model(layers, experts, 1, 5 + generator() % 30, 1);
            needs += scene.expert_bytes[m] * scene.layers[m] * scene.experts[m];
        }
        const uint32_t servers = 1 + generator() % 4;
        for (uint32_t n = 0; n < servers; ++n) scene.add_server();
        for (uint32_t n = 0; n < servers; ++n)
            for (uint32_t gpu = 0; gpu < 1 + generator() % 2; ++gpu)
                scene.add_device(n, needs / servers + generator() % 150);
        scene.add_link(0, 0, 0);
        for (uint32_t n = 0; n < servers; ++n) {
            scene.add_home(n, 1 + generator() % 9);
            for (uint32_t m = 0; m < scene.models(); ++m)
                scene.home_model[n * scene.models() + m] = 1.0 / scene.models();
            for (uint32_t x = 0; x < scene.expert_count(); ++x)
                scene.frequency[n * scene.expert_count() + x] = (generator() % 50) / 100.0;
        }
        for (const std::string name : {"prism", "redundance", "eplb"}) {
            placement_policy policy(name);
            try {
                CHECK(plan_fault(scene, policy.plan(scene)) == "");
                ++planned;
            } catch (const std::runtime_error &refused) {
                MESSAGE(name << ": " << refused.what());
            }
        }
    }
    CHECK(planned > 1100);
}

TEST_CASE("Eq. 4 by hand, in both directions") {
    moorage_move move{};
    move.size = sizeof(move);
    // (100 - 40) calls/s * 1024 s * 1/1024 s = 60 s saved.
    move.remote_per_s_current = 100, move.remote_per_s_candidate = 40;
    move.interval_s = 1024, move.remote_call_s = 1.0 / 1024;
    move.added_s = 35, move.removed_s = 24.5;
    placement_policy policy("prism");
    REQUIRE(policy.decides());
    CHECK(policy.adopt(move));
    move.removed_s = 25;  // as much as it saves: no
    CHECK_FALSE(policy.adopt(move));
    placement_policy additions("prism", {{"count_removals", "0"}});
    CHECK(additions.adopt(move));
    move.added_s = 60;
    CHECK_FALSE(additions.adopt(move));
    move.interval_s = 1100;  // longer until the next decision
    CHECK(additions.adopt(move));
    std::swap(move.remote_per_s_current, move.remote_per_s_candidate);
    CHECK_FALSE(additions.adopt(move));
    move = {};
    move.remote_per_s_current = 100, move.interval_s = 1024;
    CHECK_FALSE(policy.adopt(move));  // nothing measured
    placement_policy configured("prism", {{"cost_per_remote", "0.5"}});
    CHECK(configured.adopt(move));
    move.remote_per_s_candidate = 100;  // equal plans are not exchanged
    CHECK_FALSE(configured.adopt(move));
}

}  // namespace prism_test

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
    prism::problem of;

    explicit prism_problem(const prism_instance &from) {
        for (const auto &server : from.frequency)
            for (const auto &layer : server) flat.insert(flat.end(), layer.begin(), layer.end());
        of.servers = static_cast<uint32_t>(from.servers());
        of.layers = static_cast<uint32_t>(from.layers());
        of.experts = static_cast<uint32_t>(from.experts());
        of.frequency = flat.data();
        of.stride = size_t{of.layers} * of.experts;
        of.slots.assign(from.slots.begin(), from.slots.end());
        of.memory = from.memory;
    }
    prism_problem(const prism_problem &) = delete;
};

count_table table(const prism_instance &of, const std::vector<uint32_t> &counts) {
    count_table out;
    for (auto row = counts.begin(); row != counts.end(); row += of.layers())
        out.emplace_back(row, row + of.layers());
    return out;
}

held_table held_of(const prism_instance &of, const prism::assignment &placed) {
    held_table out(of.frequency.size(), std::vector<std::set<int>>(of.frequency[0].size()));
    for (uint32_t n = 0; n < out.size(); ++n)
        for (uint32_t l = 0; l < out[n].size(); ++l)
            for (uint32_t e = 0; e < static_cast<uint32_t>(of.experts()); ++e)
                if (placed.holds(n, l, e)) out[n][l].insert(static_cast<int>(e));
    return out;
}

// Whole numbers, so that ties are common; some layers without activations.
prism_instance random_instance(std::mt19937 &generator, int servers_max, int layers_max,
                               int experts_max) {
    const auto up_to = [&](int most) {
        return 1 + static_cast<int>(generator() % static_cast<uint32_t>(most));
    };
    prism_instance of;
    const int servers = up_to(servers_max), layers = up_to(layers_max),
              experts = up_to(experts_max);
    const uint32_t largest = generator() % 3 ? 200 : 4;
    for (int n = 0; n < servers; ++n) {
        of.frequency.emplace_back();
        for (int l = 0; l < layers; ++l) {
            std::vector<double> row;
            const bool silent = generator() % 12 == 0;
            for (int e = 0; e < experts; ++e)
                row.push_back(silent ? 0 : static_cast<double>(generator() % largest));
            of.frequency.back().push_back(row);
        }
        of.slots.push_back(static_cast<int>(
            generator() % static_cast<uint32_t>(2 * layers * experts / servers + 2)));
        of.memory.push_back(100 * static_cast<uint64_t>(of.slots.back()) + generator() % 100);
    }
    return of;
}

int places_of(const prism_instance &of) {
    int sum = 0;
    for (const int slots : of.slots) sum += std::min(slots, of.layers() * of.experts());
    return sum;
}

void check_invariants(const prism_instance &of, const count_table &counts, const held_table &held) {
    for (int n = 0; n < of.servers(); ++n) {
        int used = 0;
        for (int l = 0; l < of.layers(); ++l) {
            CHECK(counts[static_cast<size_t>(n)][static_cast<size_t>(l)] <= of.experts());
            used += static_cast<int>(held[static_cast<size_t>(n)][static_cast<size_t>(l)].size());
        }
        CHECK(used <= of.slots[static_cast<size_t>(n)]);
    }
    for (int l = 0; l < of.layers(); ++l) {
        CHECK(naive_total(counts, l) >= of.experts());
        for (int e = 0; e < of.experts(); ++e) CHECK(naive_copies(held, l, e) >= 1);
    }
}

// One model on servers of given GPUs, bytes each; the demand of one home each.
placement_scene scene_of(const prism_instance &of, uint64_t expert_bytes,
                         const std::vector<std::vector<uint64_t>> &gpus) {
    placement_scene scene;
    scene.add_model(static_cast<uint32_t>(of.layers()), static_cast<uint32_t>(of.experts()), 1,
                    expert_bytes, 1);
    for (uint32_t n = 0; n < gpus.size(); ++n) {
        scene.add_server();
        for (const uint64_t bytes : gpus[n]) scene.add_device(n, bytes, 0.001);
    }
    scene.link(0, 0, 0);
    for (uint32_t n = 0; n < gpus.size(); ++n) {
        scene.add_home(n, 1024);
        for (uint32_t x = 0; x < scene.count(); ++x)
            scene.frequency[n * scene.count() + x] =
                of.f(static_cast<int>(n), static_cast<int>(x) / of.experts(),
                     static_cast<int>(x) % of.experts()) /
                1024;
    }
    return scene;
}

held_table held_of(const prism_instance &of, const placement_scene &scene,
                   const std::vector<moorage_copy> &plan) {
    held_table out(of.frequency.size(), std::vector<std::set<int>>(of.frequency[0].size()));
    const auto experts = static_cast<uint32_t>(of.experts());
    for (const moorage_copy &copy : plan)
        out[scene.device_server[copy.device]][copy.expert / experts].insert(
            static_cast<int>(copy.expert % experts));
    return out;
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
    const std::vector<double> flat(8, 3.0), one{0, 5, 0}, none(4, 0.0), skewed{1, 3};
    CHECK(prism::entropy(flat) == 3);
    CHECK(prism::entropy(one) == 0);
    CHECK(prism::entropy(none) == 0);
    CHECK(prism::entropy(skewed) == doctest::Approx(2 - 0.75 * std::log2(3.0)));
}

TEST_CASE("equal to the naive version, coverage and bounds hold, infeasible is said") {
    std::mt19937 generator(2);
    int feasible = 0, refused = 0, rebalanced = 0;
    uint64_t replaced = 0;
    for (int round = 0; round < 3000; ++round) {
        const prism_instance of = random_instance(generator, 5, 4, 8);
        const prism_problem problem(of);
        const auto expected = naive_counts(of);
        CHECK(expected.has_value() == (places_of(of) >= of.layers() * of.experts()));
        if (!expected) {
            CHECK_THROWS_AS(prism::layer_counts(problem.of).allocate(), std::invalid_argument);
            ++refused;
            continue;
        }
        const std::vector<uint32_t> counts = prism::layer_counts(problem.of).allocate();
        REQUIRE(table(of, counts) == *expected);
        prism::assignment placed(problem.of, counts);
        held_table held = naive_assign(of, *expected);
        REQUIRE(held_of(of, placed) == held);
        check_invariants(of, *expected, held);
        replaced += placed.replaced();
        placed.fill();
        naive_fill(of, held);
        REQUIRE(held_of(of, placed) == held);
        CHECK(prism::remote_calls(problem.of, placed) ==
              doctest::Approx(naive_remote(of, held)).epsilon(1e-12));
        ++feasible;
        prism_problem bare(of);
        bare.of.cover = false;
        rebalanced += prism::layer_counts(bare.of).allocate() != counts;
    }
    CHECK(feasible > 1000);
    CHECK(refused > 500);
    CHECK(rebalanced > 300);
    CHECK(replaced > 1000);
}

TEST_CASE("where the printed Algorithm 1 loops forever") {
    // Three servers of 3 slots, two flat layers of 4: all floors are 1, the largest layer starves.
    prism_instance of;
    of.frequency.assign(3, {{1, 1, 1, 1}, {1, 1, 1, 1}});
    of.slots = {3, 3, 3};
    of.memory = {3, 3, 3};
    const prism_problem problem(of);
    const std::vector<uint32_t> counts = prism::layer_counts(problem.of).allocate();
    CHECK(table(of, counts) == count_table{{2, 1}, {1, 2}, {1, 1}});
    const prism::assignment placed(problem.of, counts);
    check_invariants(of, table(of, counts), held_of(of, placed));
}

TEST_CASE("where the printed Algorithm 1 leaves a layer uncovered") {
    // Two servers of 4, entropies 2 and 1: floors 2 and 1 each; printed, layer 0 ends with 2.
    prism_instance of;
    of.frequency.assign(2, {{1, 1, 1, 1}, {1, 1, 0, 0}});
    of.slots = {4, 4};
    of.memory = {4, 4};
    const prism_problem problem(of);
    const std::vector<uint32_t> counts = prism::layer_counts(problem.of).allocate();
    CHECK(table(of, counts) == count_table{{2, 2}, {2, 2}});
    check_invariants(of, table(of, counts), held_of(of, prism::assignment(problem.of, counts)));
}

TEST_CASE("no layer gets more places of a server than it has experts") {
    prism_instance of;
    of.frequency.assign(2, {{1, 1, 1, 1}, {1, 0, 0, 0}});
    of.slots = {7, 7};  // all of it would go to layer 0
    of.memory = {7, 7};
    const prism_problem problem(of);
    const std::vector<uint32_t> counts = prism::layer_counts(problem.of).allocate();
    CHECK(table(of, counts) == count_table{{2, 2}, {2, 2}});  // 4 and 0 each before rebalancing
    prism::assignment placed(problem.of, counts);
    check_invariants(of, table(of, counts), held_of(of, placed));
    // The places that the cap left free have room for all requested experts.
    placed.fill();
    CHECK(prism::remote_calls(problem.of, placed) == 0);
}

TEST_CASE("slots are whole experts on each GPU") {
    // 1.5 + 1.5 experts hold two, not three.
    prism_instance of;
    of.frequency.assign(2, {{4, 3, 2, 1}});
    placement_scene scene = scene_of(of, 10, {{15, 15}, {15, 15}});
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
        prism_instance of = random_instance(generator, 4, 3, 8);
        std::vector<std::vector<uint64_t>> gpus;
        for (size_t n = 0; n < of.frequency.size(); ++n) {
            of.slots[n] = 0, of.memory[n] = 0;
            gpus.emplace_back();
            for (uint32_t gpu = 0; gpu < 1 + generator() % 3; ++gpu) {
                const uint64_t tens = 1 + generator() % 9;
                gpus.back().push_back(10 * tens + generator() % 10);
                of.slots[n] += static_cast<int>(gpus.back().back() / 10);
                of.memory[n] += gpus.back().back();
            }
        }
        placement_scene scene = scene_of(of, 10, gpus);
        const auto counts = naive_counts(of);
        const bool fill = round % 2 == 0;
        placement_policy policy("prism", {{"leftover", fill ? "fill" : "empty"}});
        if (!counts) {
            CHECK_THROWS(policy.plan(scene));
            continue;
        }
        ++planned;
        held_table held = naive_assign(of, *counts);
        if (fill) naive_fill(of, held);
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(held_of(of, scene, plan) == held);
        CHECK(policy.facts().at("remote_calls_per_s") == doctest::Approx(naive_remote(of, held)));
        // Devices.
        std::map<std::pair<uint32_t, uint32_t>, bool> there;
        for (const moorage_copy &copy : plan) there[{copy.expert, copy.device}] = true;
        uint32_t first = 0;
        for (size_t n = 0; n < gpus.size(); ++n) {
            std::vector<double> load(gpus[n].size(), 0);
            std::vector<uint64_t> room;
            for (const uint64_t bytes : gpus[n]) room.push_back(bytes / 10);
            std::set<std::tuple<double, int>> heaviest;
            for (int l = 0; l < of.layers(); ++l)
                for (const int e : held[n][static_cast<size_t>(l)])
                    heaviest.insert({-of.f(static_cast<int>(n), l, e), l * of.experts() + e});
            for (const auto &[minus, expert] : heaviest) {
                size_t best = load.size();
                for (size_t gpu = 0; gpu < load.size(); ++gpu)
                    if (room[gpu] > 0 && (best == load.size() || load[gpu] < load[best]))
                        best = gpu;
                --room[best];
                load[best] -= minus;
                CHECK(there.count({static_cast<uint32_t>(expert),
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
        const prism_instance of = random_instance(generator, 3, 2, 3);
        const auto counts = naive_counts(of);
        if (!counts) continue;
        const int experts = of.layers() * of.experts();
        // All plans that fill each server's memory.
        std::vector<std::vector<std::pair<uint32_t, double>>> sets(of.frequency.size());
        double total = 0;
        for (int n = 0; n < of.servers(); ++n)
            for (uint32_t set = 0; set < 1u << experts; ++set) {
                if (std::popcount(set) != std::min(of.slots[static_cast<size_t>(n)], experts))
                    continue;
                double cost = 0;
                for (int x = 0; x < experts; ++x)
                    if (!(set >> x & 1)) cost += of.f(n, x / of.experts(), x % of.experts());
                sets[static_cast<size_t>(n)].push_back({set, cost});
            }
        for (const auto &server : of.frequency)
            for (const auto &layer : server)
                for (const double f : layer) total += f;
        double optimum = 1e300;
        const auto choose = [&](const auto &self, size_t n, uint32_t covered, double cost) -> void {
            if (n == sets.size()) {
                if (covered == (1u << experts) - 1) optimum = std::min(optimum, cost);
                return;
            }
            for (const auto &[set, more] : sets[n])
                if (cost + more < optimum) self(self, n + 1, covered | set, cost + more);
        };
        choose(choose, 0, 0, 0);
        const prism_problem problem(of);
        prism::assignment placed(problem.of, prism::layer_counts(problem.of).allocate());
        const double empty = prism::remote_calls(problem.of, placed);
        placed.fill();
        const double filled = prism::remote_calls(problem.of, placed);
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
        prism_instance of = random_instance(generator, 4, 3, 8);
        for (int &slots : of.slots) slots = of.layers() * of.experts();
        const prism_problem problem(of);
        prism::assignment placed(problem.of, prism::layer_counts(problem.of).allocate());
        placed.fill();
        CHECK(prism::remote_calls(problem.of, placed) == 0);
    }
}

TEST_CASE("servers with different tastes: fewest remote calls of all, 20 of 20") {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
        std::mt19937 generator(seed);
        const int layers = 6, experts = 32;
        prism_instance of;
        for (int n = 0; n < 3; ++n) {
            of.frequency.emplace_back();
            for (int l = 0; l < layers; ++l) {
                std::vector<double> row;
                for (int rank = 1; rank <= experts; ++rank) row.push_back(std::pow(rank, -1.5));
                std::shuffle(row.begin(), row.end(), generator);
                of.frequency.back().push_back(row);
            }
        }
        // One, one and two GPUs (Prism, Section IV-A), each with 40 % of the experts.
        const uint64_t bytes = layers * experts * 10 * 4 / 10;
        placement_scene scene = scene_of(of, 10, {{bytes}, {bytes}, {bytes, bytes}});
        std::map<std::string, double> remote;
        for (const std::string name : {"prism", "uniform", "redundance", "smartmoe", "eplb"}) {
            placement_policy policy(name, {}, seed);
            const std::vector<moorage_copy> plan = policy.plan(scene);
            CHECK(plan_fault(scene, plan) == "");
            remote[name] = naive_remote(of, held_of(of, scene, plan));
        }
        for (const auto &[name, calls] : remote)
            if (name != "prism") CHECK(remote["prism"] < calls);
    }
}

TEST_CASE("homes of one server count together, what they hold themselves does not") {
    prism_instance of;
    of.frequency = {{{8, 4, 2, 1}}, {{1, 1, 1, 5}}};
    placement_scene one = scene_of(of, 10, {{20}, {20}});
    placement_scene two = one;
    two.add_home(1, 1024);
    for (uint32_t x = 0; x < 4; ++x) {
        two.frequency[8 + x] = two.frequency[4 + x] * 0.75;
        two.frequency[4 + x] *= 0.25;
    }
    placement_policy policy("prism");
    const auto same = [](const std::vector<moorage_copy> &a, const std::vector<moorage_copy> &b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                          [](const moorage_copy &x, const moorage_copy &y) {
                              return x.expert == y.expert && x.device == y.device;
                          });
    };
    CHECK(same(policy.plan(one), policy.plan(two)));
    // Home 0 has experts 0 and 1 itself: its server keeps 2 and 3.
    one.hold(0, 0), one.hold(0, 1);
    one.cloud(1e6, 0, 0);
    CHECK(held_of(of, one, policy.plan(one))[0][0] == std::set<int>{2, 3});
}

TEST_CASE("with a cloud nothing needs a copy, unless asked for") {
    prism_instance of;
    of.frequency.assign(2, {{9, 8, 1, 1}});
    placement_scene scene = scene_of(of, 10, {{20}, {20}});
    scene.cloud(1e6, 0.01, 0.001);
    placement_policy policy("prism"), covering("prism", {{"cover", "always"}});
    for (const auto &server : held_of(of, scene, policy.plan(scene)))
        CHECK(server[0] == std::set<int>{0, 1});
    scene.cloud_s.clear();
    CHECK(plan_fault(scene, policy.plan(scene)) == "");
    scene.cloud(1e6, 0.01, 0.001);
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
    scene.link(0, 0, 0);
    scene.cloud(1e6, 0.01, 0.001);
    scene.add_home(0, 10);
    scene.home_model = {0.5, 0.5};
    for (uint32_t x = 0; x < 16; ++x) scene.frequency[x] = 1.0 / 16;
    const auto counts = [&] {
        placement_policy policy("prism");
        std::vector<int> of(2, 0);
        for (const moorage_copy &copy : policy.plan(scene)) ++of[copy.expert / 8];
        return of;
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
        scene.link(0, 0, 0);
        for (uint32_t n = 0; n < servers; ++n) {
            scene.add_home(n, 1 + generator() % 9);
            for (uint32_t m = 0; m < scene.models(); ++m)
                scene.home_model[n * scene.models() + m] = 1.0 / scene.models();
            for (uint32_t x = 0; x < scene.count(); ++x)
                scene.frequency[n * scene.count() + x] = (generator() % 50) / 100.0;
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
    placement_policy told("prism", {{"cost_per_remote", "0.5"}});
    CHECK(told.adopt(move));
    move.remote_per_s_candidate = 100;  // equal plans are not exchanged
    CHECK_FALSE(told.adopt(move));
}

}  // namespace prism_test

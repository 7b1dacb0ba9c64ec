// placement_slim_perf.cpp - SlimCaching's policies on the setting of Section VI-A, and how their
// time grows with experts, servers, users and memory (Fig. 9 and 10).
//
//   bin/placement_slim_perf --benchmark_filter='(full|switch)'
//
// tests/plugin/slim_instance.h draws the settings: `full` has 3,872 experts of three families (K =
// 1, 2 and 4), `switch` 3,360 experts with K = 1. Time is that of plan(), with demand and latency
// model. saved_s is F. of_bound, for K = 1, is its share of a bound by Lagrangian duality. Measured
// in 2026-11, processor time on an idle machine. `switch`: slim_greedy 2.3 ms (99.7 % of the
// bound), slim_dp 5.5, slim_maxconv 1.2. `full`: slim_greedy 24 ms, slim_dp 462, slim_maxconv 50.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

namespace {

// The folder beside this program, where it is built.
std::string build_directory() {
    return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
}

}  // namespace

#define MOORAGE_BINARY_DIR build_directory()
#include "tests/plugin/slim_bound.h"
#include "tests/plugin/slim_instance.h"

namespace {

using namespace moorage::test;

void plan(benchmark::State &state, const std::string &policy, const slim_setting &setting,
          bool bounded) {
    slim_instance instance(setting);
    placement_scene &scene = instance.scene;
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    placement_policy placement(policy);
    size_t copies = 0;
    for (auto _ : state) copies = placement.plan(cluster, demand).size();
    const std::map<std::string, double> facts = placement.facts();
    state.counters["experts"] = scene.expert_count();
    state.counters["calls"] = static_cast<double>(scene.call_group.size());
    state.counters["copies"] = static_cast<double>(copies);
    state.counters["latency_ms"] = 1e3 * facts.at("objective_s");
    if (facts.contains("marginals")) state.counters["marginals"] = facts.at("marginals");
    if (bounded)
        state.counters["of_bound"] =
            facts.at("saved_s") / slim_bound(scene).saved_s(facts.at("saved_s"), 300);
}

void add(const std::string &policy, const std::string &setting_name, const slim_setting &setting,
         bool bounded = false) {
    benchmark::RegisterBenchmark((policy + "/" + setting_name).c_str(),
                                 [policy, setting, bounded](benchmark::State &state) {
                                     plan(state, policy, setting, bounded);
                                 })
        ->Unit(benchmark::kMillisecond);
}

void add_growth(const std::string &policy) {
    for (const uint32_t copies : {1u, 2u, 4u}) {
        slim_setting setting;
        for (uint32_t copy = 0; copy < copies; ++copy)
            for (const slim_model &variant :
                 {switch_base_8, switch_base_16, switch_base_32, llava_stablelm, llava_qwen,
                  llava_phi2, llama_moe_4_16})
                setting.models.push_back(variant);
        add(policy, "models:" + std::to_string(setting.models.size()), setting);
    }
    for (const uint32_t servers : {2u, 4u, 6u, 8u, 10u}) {
        slim_setting setting = slim_full();
        setting.servers = servers;
        add(policy, "servers:" + std::to_string(servers), setting);
    }
    for (const uint32_t users : {10u, 20u, 30u, 40u, 50u}) {
        slim_setting setting = slim_full();
        setting.users = users;
        add(policy, "users:" + std::to_string(users), setting);
    }
    for (const uint64_t megabytes : {1'250u, 2'500u, 5'000u, 7'500u}) {
        slim_setting setting = slim_full();
        setting.server_bytes = megabytes * 1'000'000;
        add(policy, "server_mb:" + std::to_string(megabytes), setting);
    }
}

}  // namespace

int main(int argc, char **argv) {
    for (const char *policy :
         {"slim_greedy", "slim_dp", "slim_maxconv", "lfu", "random", "ushape"}) {
        add(policy, "switch", slim_switch(), /*bounded=*/true);
        add(policy, "full", slim_full());
    }
    for (const char *policy : {"slim_greedy", "slim_dp", "slim_maxconv"}) add_growth(policy);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}

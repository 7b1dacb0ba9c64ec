// placement_joint_perf.cpp - the joint policy at the papers' sizes and beyond, with its bound.
//
//   bin/placement_joint_perf
//
// `slim` and `switch` are the settings of tests/plugin/slim_instance.h. `prism` is four GPUs in
// three servers with 1,664 experts, top-6 of 64. `servers` has as many servers of one GPU, up to
// 256. Time is that of plan(), with demand, latency model and bound. gap is the latency over the
// bound, less one. of_prism is the latency over that of Prism's plan.
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
#include <moorage/latency.hpp>

#include "tests/plugin/joint_scene.h"
#include "tests/plugin/slim_instance.h"

namespace {

using namespace moorage::test;

void plan(benchmark::State &state, placement_scene &scene, const parameters &params) {
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    placement_policy placement("joint", params);
    size_t copies = 0;
    for (auto _ : state) copies = placement.plan(cluster, demand).size();
    const std::map<std::string, double> facts = placement.facts();
    state.counters["experts"] = scene.expert_count();
    state.counters["copies"] = static_cast<double>(copies);
    for (const char *name : {"objective_s", "bound_s", "gap", "saved_gap", "remote_calls", "steps"})
        if (facts.contains(name)) state.counters[name] = facts.at(name);
}

void edge(benchmark::State &state, const slim_setting &setting) {
    slim_instance instance(setting);
    plan(state, instance.scene, {});
}

void cluster(benchmark::State &state, const parallel_shape &shape, const std::string &objective) {
    parallel_cluster drawn(shape, 1);
    plan(state, drawn.scene, {{"objective", objective}});
    if (shape.gpus.size() > 16) return;
    const moorage_cluster input = drawn.scene.cluster();
    const moorage_demand demand = drawn.scene.demand();
    moorage::latency_model model(input, demand);
    placement_policy prism("prism");
    model.assign(prism.plan(input, demand));
    state.counters["of_prism"] = state.counters["objective_s"] / model.token_s();
}

parallel_shape sized(std::vector<uint32_t> gpus, uint32_t tokens, double room) {
    parallel_shape shape;
    shape.gpus = std::move(gpus), shape.layers = 26, shape.experts = 64, shape.top_k = 6;
    shape.tokens = tokens, shape.room = room;
    return shape;
}

}  // namespace

int main(int argc, char **argv) {
    const auto add = [](const std::string &name, auto run) {
        benchmark::RegisterBenchmark(name.c_str(), run)
            ->Unit(benchmark::kMillisecond)
            ->Iterations(1);
    };
    add("switch", [](benchmark::State &state) { edge(state, slim_switch()); });
    add("slim", [](benchmark::State &state) { edge(state, slim_full()); });
    for (const std::string objective : {"both", "latency", "remote"})
        add("prism/" + objective, [objective](benchmark::State &state) {
            cluster(state, sized({1, 1, 2}, 1000, 1.6), objective);
        });
    for (const uint32_t servers : {16u, 64u, 256u})
        add("servers/" + std::to_string(servers), [servers](benchmark::State &state) {
            cluster(state, sized(std::vector<uint32_t>(servers, 1), 100, servers / 32.0 + 1),
                    "both");
        });
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

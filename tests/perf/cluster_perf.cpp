// cluster_perf.cpp - how fast virtual time goes for 256 GPUs: seconds of a cluster per second.
//
// Workload: Prism's servers (1, 1 and 2 A100 40 GB, 30 % of memory for experts, 500 Mbit/s, a
// request every 10 s each) 64 times over, DeepSeek-V2-Lite's shape (26 layers x 64 experts, top-6),
// synthetic routing in three domains, requests of 100 tokens prefilled and 4 decoded. The figure
// includes set-up (statistics, placement), so the longer run shows the rate of the emulation
// itself. Measured in 2026-11 on an idle machine, in processor time: 82 virtual seconds a second,
// 71 with migration; 0.42 GB. One hour of configs/clusters/prism_deepseek.toml with `--set
// cluster.servers.count=64` has 68,975 requests of 140 tokens, 9.7 million in total. It took 58 s
// and 335 MB without migration, 64 s and 358 MB with it. No function stands out in a profile. Time
// grows with the tokens of prompts and with the servers that are offered for each absent expert.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

#include "tools/cluster/cluster_run.h"
#include "tests/perf/perf_trace.h"

namespace {

using namespace moorage::core;

std::string server(const char *name, int gpus) {
    return "[[cluster.servers]]\nname = \"" + std::string(name) +
           "\"\ncount = 64\ngpus = \"a100_40gb\"\n" + "gpu_count = " + std::to_string(gpus) +
           "\nexpert_memory_share = 0.3\nworkload = \"" + name + "\"\n";
}

std::string workload(const char *name, int first, const std::filesystem::path &trace) {
    return "[[cluster.workloads]]\nname = \"" + std::string(name) + "\"\ntrace = \"" +
           trace.string() + "\"\nrequest_first = " + std::to_string(first) +
           "\nrequest_step = 3\npoisson_s = 10\ninput_tokens = 100\noutput_tokens = 4\n";
}

void hundreds_of_gpus(benchmark::State &state) {
    const std::filesystem::path trace = moorage::perf::write_perf_trace(
        {.layers = 26, .experts = 64, .top_k = 6, .tokens = 12'000, .requests = 120, .domains = 3});
    const std::filesystem::path file = trace.string() + ".toml";
    std::ofstream(file) << "[cluster]\nduration_s = " << state.range(0)
                        << "\n[[cluster.models]]\nname = \"model\"\nshape = \"deepseek_v2_lite\"\n"
                        << server("one", 1) << server("two", 1) << server("three", 2)
                        << "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 500e6\n"
                        << "latency_s = 0.5e-3\n"
                        << workload("one", 0, trace) << workload("two", 1, trace)
                        << workload("three", 2, trace) << "[placement]\nplugin = \"prism\"\n"
                        << "interval_s = " << state.range(1) << "\n";
    run_resources shared;
    const auto config = load_run_config(file, {});
    if (!config || !shared.scan({}).ok())
        return state.SkipWithError(config ? "no policies" : config.failure().text.c_str());
    uint64_t requests = 0;
    for (auto _ : state) {
        const auto report = run_cluster(*config, shared, {});
        if (!report) return state.SkipWithError(report.failure().text.c_str());
        requests += report->requests;
    }
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    state.counters["peak_MB"] = static_cast<double>(used.ru_maxrss) / 1e3;
    state.counters["virtual_s/s"] = benchmark::Counter(
        static_cast<double>(state.range(0)), benchmark::Counter::kIsIterationInvariantRate);
    state.SetItemsProcessed(static_cast<int64_t>(requests));
    state.SetLabel("requests");
    std::filesystem::remove(trace);
    std::filesystem::remove(file);
}
BENCHMARK(hundreds_of_gpus)
    ->ArgNames({"virtual_s", "interval_s"})
    ->Args({60, 0})
    ->Args({600, 0})
    ->Args({600, 300})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();

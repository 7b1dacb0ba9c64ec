// learned_cache_perf.cpp - time of a layer step with the caches that learn: echo, lin, ema.
//
//   bin/learned_cache_perf
//
// Replays a made-up trace with a quarter of the experts cached and divides the processor time of
// the thread, simulator and evictions included, by the layer steps. Counter: ns_a_step, the least
// of the repetitions. `lru` shows the time of the simulator alone.
#include <benchmark/benchmark.h>

#include <ctime>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "core/cache/replay.h"
#include "tests/perf/perf_trace.h"

namespace moorage::perf {

namespace {

struct shape {
    const char *name;
    uint32_t layers, experts, top_k;
};
constexpr shape shapes[] = {{"mixtral", 32, 8, 2},
                            {"gpt_oss", 24, 32, 4},
                            {"qwen15moe", 24, 60, 4},
                            {"deepseek_v2_lite", 26, 64, 6},
                            {"qwen3moe", 48, 128, 8}};

double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void step_time(benchmark::State &state, const core::trace &source, const core::policy &cache_policy,
               const char *simd) {
    core::replay_job job;
    job.cache_policy = &cache_policy;
    job.slots = source.layers() * source.experts() / 4;
    if (*simd != '\0') job.params.push_back({"simd", std::string(simd), "perf"});
    const double steps = static_cast<double>(source.tokens() * source.layers());
    double best = 1e9;
    for (auto _ : state) {
        const double begin = thread_seconds();
        const auto counted = core::replay(source, nullptr, job);
        if (!counted) {
            state.SkipWithError(counted.failure().text.c_str());
            return;
        }
        best = std::min(best, (thread_seconds() - begin) / steps);
    }
    state.counters["ns_a_step"] = best * 1e9;
}

int run(int argc, char **argv) {
    core::set_log_level(core::log_level::error);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    core::registry policies;
    const auto scanned = policies.scan(core::registry::default_paths());
    if (!scanned) std::fprintf(stderr, "%s\n", scanned.failure().text.c_str());
    std::vector<std::optional<core::trace>> sources(std::size(shapes));
    for (size_t i = 0; i < std::size(shapes); ++i) {
        const shape &test_shape = shapes[i];
        const auto file = write_perf_trace({.layers = test_shape.layers,
                                            .experts = test_shape.experts,
                                            .top_k = test_shape.top_k,
                                            .tokens = 6000,
                                            .requests = 12,
                                            .a = 1,
                                            .reuse = 0.3,
                                            .seed = 1});
        auto opened = core::trace::open(file);
        if (!opened) return 1;
        sources[i].emplace(std::move(*opened));
        std::filesystem::remove(file);
        for (const char *name : {"lru", "lfu", "ema", "lin", "echo"}) {
            const auto found = policies.find(name, "cache");
            if (!found) return 1;
            for (const char *simd : {"", "avx2", "portable"}) {
                if (*simd != '\0' && std::string(name) != "echo") continue;
                const std::string dash = *simd == '\0' ? "" : "/";
                benchmark::RegisterBenchmark(
                    (std::string(test_shape.name) + "/" + name + dash + simd).c_str(),
                    [&source = *sources[i], policy = *found, simd](auto &state) {
                        step_time(state, source, *policy, simd);
                    })
                    ->Unit(benchmark::kMillisecond);
            }
        }
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

}  // namespace

}  // namespace moorage::perf

int main(int argc, char **argv) { return moorage::perf::run(argc, argv); }

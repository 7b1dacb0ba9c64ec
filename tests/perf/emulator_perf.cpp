// emulator_perf.cpp - how fast virtual time goes: events, tokens, and the host's own cost of a
// step.
//
// Workload: Mixtral's shape (32 layers x 8 experts, top-2) on an RTX 4090 profile, half the experts
// cached, lru, load_all. host_step keeps everything resident and calls every hook of trivial
// policies, so it measures the host. echo_step measures a step with echo.
#include <benchmark/benchmark.h>

#include "core/execute/emulator.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/run.h"
#include "tests/perf/perf_trace.h"

namespace {

using namespace moorage::core;

struct bench {
    std::filesystem::path file;
    run_resources shared;
    run_config config;

    explicit bench(uint64_t tokens, uint32_t predictions)
        : bench({.layers = 32,
                 .experts = 8,
                 .top_k = 2,
                 .tokens = tokens,
                 .requests = 20,
                 .predictions = predictions},
                "Mixtral-8x7B") {}
    bench(const synth_options &options, const char *shape) {
        file = moorage::perf::write_perf_trace(options);
        config.file = "perf.toml";
        config.trace = file;
        config.shape = shape;
        config.profile = "rtx_4090";
        config.experts = 128;
        config.cache.plugin = "lru";  // independent of the default
    }
    ~bench() { std::filesystem::remove(file); }
    bool ready() { return !file.empty() && shared.scan({}).ok(); }
};

// attention, two experts of which one is loaded, per layer: four events.
void emulator_events(benchmark::State &state) {
    bench fixture(100, 0);
    const auto hardware = load_hardware({"rtx_4090", "", "", "."});
    const auto shape = load_shape("Mixtral-8x7B", ".");
    if (!hardware || !shape) return state.SkipWithError("profile or shape not found");
    const cost_model costs(*hardware, *shape);
    emulator machine(costs, 4, nullptr);
    pass tokens;
    tokens.tokens.push_back({});
    for (auto _ : state) {
        machine.attention(0, tokens);
        machine.expect(0);
        machine.send({.page = 1, .bytes = shape->expert_bytes});
        machine.expert_on_device({.page = 0, .tokens = 1, .tag = 0});
        machine.expert_on_device({.page = 1, .tokens = 1, .transfer = 0, .tag = 1});
        for (int ends = 0; ends < 4; ++ends)
            if (machine.wait().kind == event_kind::piece) machine.arrived(0);
    }
    state.SetItemsProcessed(static_cast<int64_t>(machine.events()));
    state.SetLabel("events");
}
BENCHMARK(emulator_events);

void emulated_tokens(benchmark::State &state) {
    const uint64_t tokens = static_cast<uint64_t>(state.range(0));
    bench fixture(tokens, 0);
    if (!fixture.ready()) return state.SkipWithError("no trace or no policies");
    run_options options;
    options.optimum = false;
    for (auto _ : state) {
        const auto report = run(fixture.config, fixture.shared, options);
        if (!report) return state.SkipWithError(report.failure().text.c_str());
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens));
    state.SetLabel("tokens, Mixtral's shape, lru, load_all");
}
BENCHMARK(emulated_tokens)->Arg(5'000)->Arg(20'000)->Arg(80'000)->Unit(benchmark::kMillisecond);

// Calls all hooks (observer of the cache, router, dispatch with an answer, prefetch with forecasts,
// transport). All experts are resident after the first passes. Items are layer steps.
void host_step(benchmark::State &state) {
    const uint64_t tokens = 20'000;
    bench fixture(tokens, 4);
    if (!fixture.ready()) return state.SkipWithError("no trace or no policies");
    fixture.config.experts = 256;
    fixture.config.dispatch.plugin = "cost";
    fixture.config.dispatch.params = {{"keep", 1e6, "perf"}};  // an answer for every item: load it
    fixture.config.prefetch.plugin = "next_gate";
    run_options options;
    options.optimum = false;
    for (auto _ : state) {
        const auto report = run(fixture.config, fixture.shared, options);
        if (!report) return state.SkipWithError(report.failure().text.c_str());
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens * 32));
    state.SetLabel("layer steps, everything resident, all hooks");
}
BENCHMARK(host_step)->Unit(benchmark::kMillisecond);

// A whole layer step with the slowest policies: 58 layers of 256 experts, top-8, echo as cache and
// prefetch with the gate's predictions, overlap.
void echo_step(benchmark::State &state) {
    const uint64_t tokens = 1'000;
    const synth_options options{.layers = 58,
                                .experts = 256,
                                .top_k = 8,
                                .tokens = tokens,
                                .reuse = 0.5,
                                .predictions = 16,
                                .prediction_accuracy = 0.8};
    bench fixture(options, "DeepSeek-V3");
    if (!fixture.ready()) return state.SkipWithError("no trace or no policies");
    fixture.config.experts = 58 * 64;
    fixture.config.buffer_experts = 16;
    fixture.config.cache.plugin = fixture.config.prefetch.plugin = "echo";
    fixture.config.dispatch.plugin = "overlap";
    run_options emulation_options;
    emulation_options.optimum = false;
    for (auto _ : state) {
        const auto report = run(fixture.config, fixture.shared, emulation_options);
        if (!report) return state.SkipWithError(report.failure().text.c_str());
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens * options.layers));
    state.SetLabel("layer steps of 256 experts, top-8, echo twice, overlap");
}
BENCHMARK(echo_step)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

// decode_perf.cpp - whole models on the CPU against the machine's limits: decode in bytes of
// weights read per token, prefill in operations.
//
// Models: the demo model, which fits in the last-level cache of many processors, and a slice of
// Qwen1.5-MoE's shape with random weights. The slice has two layers with all their experts, 2.1 GB,
// and a vocabulary of 32,768. The bounds (machine_speed.h) are measured in the same run, before and
// after, with the same number of threads (MOORAGE_THREADS, otherwise one per core).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/machine_speed.h"
#include "core/pipeline/run.h"
#include "tests/expert_spread.h"

namespace {

using namespace moorage::core;

uint32_t threads_wanted() {
    const char *const threads = std::getenv("MOORAGE_THREADS");
    return threads ? static_cast<uint32_t>(std::atoi(threads)) : 0;
}

struct machine_bounds {
    thread_pool pool{threads_wanted()};
    double bytes_per_second = 0, flops_per_second = 0;
    machine_bounds() { measure(); }
    void measure() {
        bytes_per_second = std::max(bytes_per_second, measure_read_bandwidth(pool, 1.0));
        flops_per_second = std::max(flops_per_second, measure_multiply_add_rate(pool, 0.5));
        std::printf("%u threads: %.1f GB/s read, %.0f GFLOP/s\n", pool.threads(),
                    bytes_per_second / 1e9, flops_per_second / 1e9);
    }
};
machine_bounds &bounds() {
    static machine_bounds measured;
    return measured;
}

uint64_t bytes_of_mlp(const mlp_weights &mlp) {
    return bytes_of(mlp.gate) + bytes_of(mlp.up) + bytes_of(mlp.down);
}

// Bytes of all weights that one token reads: dense parts, its experts, the head.
uint64_t bytes_per_token(const model &source_model) {
    uint64_t bytes = bytes_of(source_model.weights().head);
    for (const layer_weights &layer : source_model.weights().layers) {
        const attention_weights &a = layer.attention;
        for (const matrix *weights : {&a.query, &a.key, &a.value, &a.output, &a.query_a, &a.query_b,
                                      &a.kv_a, &a.kv_b, &layer.router, &layer.shared_gate})
            if (*weights) bytes += bytes_of(*weights);
        for (const mlp_weights *mlp : {&layer.dense, &layer.shared})
            if (mlp->gate) bytes += bytes_of_mlp(*mlp);
        if (!layer.experts.empty())
            bytes += source_model.config().top_k * bytes_of_mlp(layer.experts.front());
    }
    return bytes;
}

std::unique_ptr<model> slice() {
    auto config = config_of_shape("qwen1_5_moe_a2_7b", ".");
    if (!config) return nullptr;
    config->layers = 2;
    config->moe.resize(2);
    config->vocabulary = 32768;
    if (!config->attention.sliding.empty()) config->attention.sliding.resize(2);
    auto shape_model = random_model(*config, {.seed = 1});
    return shape_model ? std::move(shape_model).value() : nullptr;
}

std::unique_ptr<model> demo() {
    auto opened = open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    return opened ? std::move(opened).value() : nullptr;
}

// Counts the choices of the passes of `run`. Random routers must spread over the experts, otherwise
// only a few of them are timed. A trained model's routers are as they are.
class watched_spread {
public:
    watched_spread(forward &run, const model &source_model)
        : spread_(static_cast<uint32_t>(source_model.config().moe_layers().size()),
                  source_model.config().experts, source_model.config().top_k) {
        run.watch([this](uint32_t layer, std::span<const uint32_t> chosen) {
            spread_.add(layer, chosen);
        });
    }
    void report(benchmark::State &state, bool random) const {
        state.counters["distinct_experts"] = spread_.least();
        const status sound = spread_.check();
        if (random && !sound) state.SkipWithError(sound.failure().text.c_str());
    }

private:
    moorage::test::expert_spread spread_;
};

std::vector<int32_t> make_ids(const model &source_model, size_t count) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i)
        ids[i] = static_cast<int32_t>((i * 2654435761u + 12345) % source_model.config().vocabulary);
    return ids;
}

// Decode after a prompt of 32 tokens; the median step counts.
void decode(benchmark::State &state, std::unique_ptr<model> (*open)()) {
    const std::unique_ptr<model> source_model = open();
    if (!source_model) return state.SkipWithError("no model");
    constexpr uint32_t steps = 96;
    auto compute = cpu_model::create(*source_model, bounds().pool,
                                     {.tokens_max = 32, .context_max = 32 + steps});
    if (!compute) return state.SkipWithError(compute.failure().text.c_str());
    forward run(**compute, *source_model);
    const watched_spread spread(run, *source_model);
    const std::vector<int32_t> ids = make_ids(*source_model, 32 + steps);
    std::vector<double> seconds;
    for (auto _ : state) {
        run(prompt_pass({ids.data(), 32}, 0, 0, false));
        for (uint32_t step = 0; step < steps; ++step) {
            const pass next = prompt_pass({ids.data() + 32 + step, 1}, 0, 32 + step, true);
            const auto begun = std::chrono::steady_clock::now();
            run(next);
            seconds.push_back(
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
        }
    }
    bounds().measure();
    std::nth_element(seconds.begin(), seconds.begin() + ptrdiff_t(seconds.size() / 2),
                     seconds.end());
    const double median = seconds[seconds.size() / 2];
    const double rate = static_cast<double>(bytes_per_token(*source_model)) / median;
    state.counters["MB_per_token"] = static_cast<double>(bytes_per_token(*source_model)) / 1e6;
    state.counters["us_per_token"] = median * 1e6;
    state.counters["GB_per_s"] = rate / 1e9;
    state.counters["of_bandwidth"] = rate / bounds().bytes_per_second;
    spread.report(state, open == slice);
}

void prefill(benchmark::State &state, std::unique_ptr<model> (*open)()) {
    const std::unique_ptr<model> source_model = open();
    if (!source_model) return state.SkipWithError("no model");
    constexpr uint32_t tokens = 512;
    auto compute = cpu_model::create(*source_model, bounds().pool,
                                     {.tokens_max = tokens, .context_max = tokens});
    if (!compute) return state.SkipWithError(compute.failure().text.c_str());
    forward run(**compute, *source_model);
    const watched_spread spread(run, *source_model);
    const std::vector<int32_t> ids = make_ids(*source_model, tokens);
    std::vector<double> seconds;
    for (auto _ : state) {
        const auto begun = std::chrono::steady_clock::now();
        run(prompt_pass(ids, 0, 0, false));
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    }
    bounds().measure();
    std::nth_element(seconds.begin(), seconds.begin() + ptrdiff_t(seconds.size() / 2),
                     seconds.end());
    // Two operations a weight and token; the head computes one token only. 16 bits a weight.
    const double weights = static_cast<double>(bytes_per_token(*source_model) -
                                               bytes_of(source_model->weights().head)) /
                           2;
    const double rate = 2 * weights * tokens / seconds[seconds.size() / 2];
    state.counters["tokens_per_s"] = tokens / seconds[seconds.size() / 2];
    state.counters["GFLOP_per_s"] = rate / 1e9;
    state.counters["of_peak"] = rate / bounds().flops_per_second;
    spread.report(state, open == slice);
}

// The same through the pipeline, policies and report included.
void decode_run(benchmark::State &state) {
    run_resources shared;
    run_config config;
    config.file = "decode_perf";
    config.executor = "cpu";
    config.profile = "host";
    config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    config.prompts = {"The president said that the"};
    config.max_tokens = 400;
    config.prefill = 512;
    config.stop.at_model_ends = false;
    config.threads = threads_wanted();
    if (!shared.scan({}).ok()) return state.SkipWithError("no policies");
    std::vector<double> tpot_ms;
    for (auto _ : state) {
        const auto done = run(config, shared, {});
        if (!done) return state.SkipWithError(done.failure().text.c_str());
        tpot_ms.push_back(done->tpot_ms.p50);
    }
    bounds().measure();
    const double best = *std::min_element(tpot_ms.begin(), tpot_ms.end());
    const double bytes =
        static_cast<double>(bytes_per_token(*(*shared.open_model(config.model))->loaded_model));
    state.counters["us_per_token"] = best * 1e3;
    state.counters["of_bandwidth"] = bytes / (best * 1e-3) / bounds().bytes_per_second;
}

}  // namespace

BENCHMARK_CAPTURE(decode, demo, demo)->Iterations(20)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_run)->Iterations(5)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, qwen15_moe_slice, slice)->Iterations(2)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(prefill, qwen15_moe_slice, slice)->Iterations(3)->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();

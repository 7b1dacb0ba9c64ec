// kernels_perf.cpp - the CPU kernels against the machine's limits.
//
// The bounds are measured at the start of the same run and again at its end (machine_speed.h), with
// the same number of threads: bytes read per second, and float32 operations per second.
// `of_bandwidth` gives streaming kernels as a share of the first, in bytes of weights. `of_peak`
// gives blocked ones as a share of the second. Weights are random. Where memory counts, they are
// far larger together than the caches. Threads: MOORAGE_THREADS, otherwise one per core.
// Activations are float32. With MOORAGE_ARITHMETIC=fast they have the type that each format is made
// for.
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/machine_speed.h"

namespace {

using namespace moorage::core;

struct bounds {
    thread_pool pool;
    double bytes_per_second = 0, flops_per_second = 0;
    bounds(uint32_t threads, arithmetic mode) : pool(threads, mode) { measure(); }
    void measure() {
        bytes_per_second = measure_read_bandwidth(pool, 1.0);
        flops_per_second = measure_multiply_add_rate(pool, 0.5);
        std::printf("%s, %u threads: %.1f GB/s read, %.0f GFLOP/s\n", vector_target().c_str(),
                    pool.threads(), bytes_per_second / 1e9, flops_per_second / 1e9);
    }
};

bounds &machine() {
    static const char *const threads = std::getenv("MOORAGE_THREADS");
    static const char *const mode = std::getenv("MOORAGE_ARITHMETIC");
    static bounds measured(
        threads ? static_cast<uint32_t>(std::atoi(threads)) : 0,
        mode && std::string_view(mode) == "fast" ? arithmetic::fast : arithmetic::exact);
    return measured;
}

// Bytes that look like small weights in every type.
std::vector<std::byte> random_bytes(size_t count) {
    std::mt19937_64 random(1);
    std::vector<std::byte> bytes(count);
    for (size_t i = 0; i + 8 <= count; i += 8) {
        const uint64_t word = (random() & 0x83ff83ff83ff83ffu) | 0x3c003c003c003c00u;
        for (size_t byte = 0; byte < 8; ++byte) bytes[i + byte] = std::byte(word >> (8 * byte));
    }
    return bytes;
}

// Enough matrices to fill half a gibibyte, or one for arithmetic.
struct pile {
    std::vector<std::byte> bytes, scales;
    std::vector<uint32_t> groups;
    std::vector<matrix> matrices;
    pile(weight_type type, uint32_t rows, uint32_t columns, size_t total_bytes) {
        matrix layout = packed_matrix(type, rows, columns, nullptr);
        if (type == weight_type::int4_ordered) {
            // Any order of the columns: here that of every 128th.
            constexpr uint32_t GROUP = 128;
            for (uint32_t i = 0; i < columns; ++i) groups.push_back(i % (columns / GROUP));
            layout.group_of = groups.data();
            layout.scale_row_bytes = uint64_t{columns / GROUP} * 2 * sizeof(float);
        }
        const size_t count = std::max<size_t>(1, total_bytes / (layout.row_bytes * rows));
        bytes = random_bytes(count * layout.row_bytes * rows);
        scales.assign(count * layout.scale_row_bytes * rows, std::byte{120});
        for (size_t i = 0; i < count; ++i) {
            layout.data = bytes.data() + i * layout.row_bytes * rows;
            if (!scales.empty()) layout.scales = scales.data() + i * layout.scale_row_bytes * rows;
            matrices.push_back(layout);
        }
    }
};
constexpr size_t STREAM_BYTES = size_t{1} << 29;

// Times of single iterations, so that figures can be medians and bests. Other work on the machine
// spoils a mean.
class stopwatch {
public:
    template <class Body>
    void time(Body &&body) {
        const double begin_s = now();
        body();
        seconds_.push_back(now() - begin_s);
    }
    // The counters of a benchmark whose iterations each read so many bytes and do so many
    // operations.
    void report(benchmark::State &state, double bytes, double flops) {
        std::sort(seconds_.begin(), seconds_.end());
        const double best = seconds_.front(), median = seconds_[seconds_.size() / 2];
        state.counters["best_us"] = best * 1e6;
        state.counters["GB/s"] = bytes / best / 1e9;
        state.counters["GFLOP/s"] = flops / best / 1e9;
        state.counters["of_read"] = bytes / best / machine().bytes_per_second;
        state.counters["of_read_median"] = bytes / median / machine().bytes_per_second;
        state.counters["of_peak"] = flops / best / machine().flops_per_second;
        state.counters["of_peak_median"] = flops / median / machine().flops_per_second;
    }

private:
    static double now() {
        // With one thread, the thread's own time, so that time without the processor does not
        // count.
        timespec time;
        clock_gettime(machine().pool.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                      &time);
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    }
    std::vector<double> seconds_;
};

// Matrices of one shape after one another: type, rows, columns, tokens.
void matrix_product(benchmark::State &state) {
    const auto type = static_cast<weight_type>(state.range(0));
    const auto rows = static_cast<uint32_t>(state.range(1));
    const auto columns = static_cast<uint32_t>(state.range(2));
    const auto tokens = static_cast<uint32_t>(state.range(3));
    const pile weights(type, rows, columns, tokens > 16 ? 0 : STREAM_BYTES);
    std::vector<float> input(size_t{tokens} * columns, 0.01f), output(size_t{tokens} * rows);
    size_t next = 0;
    stopwatch watch;
    for (auto _ : state) {
        const matrix &weight_matrix = weights.matrices[next++ % weights.matrices.size()];
        const product product{&weight_matrix, {input.data(), columns}, {output.data(), rows}, {}};
        watch.time([&] { multiply(machine().pool, tokens, {&product, 1}); });
    }
    state.SetLabel(name_of(type));
    watch.report(state, static_cast<double>(bytes_of(weights.matrices[0])),
                 2.0 * tokens * rows * columns);
}
const std::vector<int64_t> USUAL = {static_cast<int64_t>(usual_weights)};
const std::vector<int64_t> ALL_TYPES =
    benchmark::CreateDenseRange(0, weight_format_count - 1, /*step=*/1);
BENCHMARK(matrix_product)
    ->ArgNames({"type", "rows", "columns", "tokens"})
    ->ArgsProduct({ALL_TYPES, {2048}, {2048}, {1}})
    ->ArgsProduct({USUAL, {1408}, {2048}, {1, 2, 3, 4, 5, 6, 8, 12, 16, 34}})
    ->ArgsProduct({USUAL, {151936}, {2048}, {1}})
    ->ArgsProduct({ALL_TYPES, {2048}, {2048}, {64, 512}})
    ->UseRealTime();

// Steps of k experts of Qwen1.5-MoE's or Mixtral's size: type, hidden, intermediate, experts,
// tokens.
void experts_step(benchmark::State &state) {
    const auto type = static_cast<weight_type>(state.range(0));
    const auto hidden = static_cast<uint32_t>(state.range(1));
    const auto intermediate = static_cast<uint32_t>(state.range(2));
    const auto experts = static_cast<uint32_t>(state.range(3));
    const auto tokens = static_cast<uint32_t>(state.range(4));
    const size_t total = STREAM_BYTES / 3;
    const pile gates(type, intermediate, hidden, total), ups(type, intermediate, hidden, total),
        downs(type, hidden, intermediate, total);
    std::vector<mlp_weights> weights;
    for (size_t i = 0; i < gates.matrices.size(); ++i)
        weights.push_back({gates.matrices[i], ups.matrices[i], downs.matrices[i], {}, {}, {}});
    std::vector<float> input(size_t{tokens} * hidden, 0.01f);
    std::vector<float> output(size_t{tokens} * hidden * experts);
    mlp_kernel kernel(machine().pool);
    std::vector<mlp_call> calls(experts);
    size_t next = 0;
    stopwatch watch;
    for (auto _ : state) {
        for (uint32_t i = 0; i < experts; ++i)
            calls[i] = {&weights[next++ % weights.size()],
                        intermediate,
                        0,
                        intermediate,
                        activation_kind::silu,
                        0,
                        tokens,
                        nullptr,
                        {input.data(), hidden},
                        {output.data() + size_t{i} * tokens * hidden, hidden},
                        false};
        watch.time([&] { kernel(calls); });
    }
    state.SetLabel(name_of(type));
    watch.report(state, 3.0 * experts * static_cast<double>(bytes_of(gates.matrices[0])),
                 6.0 * experts * tokens * hidden * intermediate);
}
BENCHMARK(experts_step)
    ->ArgNames({"type", "hidden", "intermediate", "experts", "tokens"})
    ->ArgsProduct({ALL_TYPES, {2048}, {1408}, {4}, {1}})
    ->ArgsProduct({USUAL, {256}, {192}, {4}, {1}})
    ->ArgsProduct({USUAL, {4096}, {14336}, {2}, {1}})
    ->ArgsProduct({USUAL, {2048}, {1408}, {4}, {2, 4, 5, 8}})
    ->ArgsProduct({ALL_TYPES, {2048}, {1408}, {16}, {34}})
    ->ArgsProduct({USUAL, {2048}, {1408}, {16}, {16, 128}})
    ->UseRealTime();

// Decode of one token (tokens = 1) or a prompt: heads, kv_heads, head_dim, tokens, context.
void attention(benchmark::State &state) {
    const auto heads = static_cast<uint32_t>(state.range(0));
    const auto kv_heads = static_cast<uint32_t>(state.range(1));
    const auto head_dim = static_cast<uint32_t>(state.range(2));
    const auto tokens = static_cast<uint32_t>(state.range(3));
    const auto context = static_cast<uint32_t>(state.range(4));
    const size_t stride = size_t{kv_heads} * head_dim;
    // Enough layers to exceed the caches.
    const size_t layers = std::max<size_t>(1, STREAM_BYTES / (context * stride * 8));
    std::vector<float> keys(layers * context * stride, 0.1f), values = keys;
    std::vector<float> query(size_t{tokens} * heads * head_dim, 0.1f), output = query;
    std::vector<const float *> key_of(tokens), value_of(tokens);
    std::vector<uint32_t> window_begins(tokens, 0), positions(tokens);
    for (uint32_t t = 0; t < tokens; ++t) positions[t] = context - tokens + t;
    size_t next = 0;
    stopwatch watch;
    for (auto _ : state) {
        const size_t layer = next++ % layers;
        std::fill(key_of.begin(), key_of.end(), keys.data() + layer * context * stride);
        std::fill(value_of.begin(), value_of.end(), values.data() + layer * context * stride);
        const attention_call call{tokens,
                                  heads,
                                  kv_heads,
                                  head_dim,
                                  head_dim,
                                  0.1f,
                                  {query.data(), size_t{heads} * head_dim},
                                  {output.data(), size_t{heads} * head_dim},
                                  key_of.data(),
                                  value_of.data(),
                                  stride,
                                  stride,
                                  window_begins.data(),
                                  positions.data(),
                                  {}};
        watch.time([&] { attend(machine().pool, call); });
    }
    watch.report(state, 8.0 * context * static_cast<double>(stride),
                 4.0 * tokens * heads * head_dim * (context - tokens / 2.0));
}
BENCHMARK(attention)
    ->ArgNames({"heads", "kv_heads", "head_dim", "tokens", "context"})
    ->ArgsProduct({{16}, {16}, {128}, {1}, {128, 1024, 8192}})
    ->ArgsProduct({{32}, {8, 4}, {128}, {1}, {1024, 8192}})
    ->ArgsProduct({{16}, {1}, {576}, {1}, {1024, 8192}})
    ->ArgsProduct({{16}, {16}, {128}, {512}, {512, 2048}})
    ->ArgsProduct({{32}, {8}, {128}, {512}, {2048}})
    ->UseRealTime();

// The least a parallel loop costs.
void empty_loop(benchmark::State &state) {
    for (auto _ : state) machine().pool.parallel_for(machine().pool.threads(), [](uint32_t) {});
}
BENCHMARK(empty_loop)->UseRealTime();

}  // namespace

int main(int count, char **arguments) {
    benchmark::Initialize(&count, arguments);
    if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
    machine();
    benchmark::RunSpecifiedBenchmarks();
    machine().measure();
    benchmark::Shutdown();
    return 0;
}

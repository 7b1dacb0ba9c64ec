// cuda_measure.cpp - measures the GPU part by part, and the host beside it.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_measure.h"

#include <algorithm>
#include <chrono>

#include "core/execute/cpu/machine_speed.h"
#include "core/execute/cuda/measure_parts.h"

namespace moorage::core {

namespace {

// Single measurements of all parts together, about.
constexpr double measurements = 126;

std::function<double()> clock_of(const cuda_measure_options &options) {
    if (options.now) return options.now;
    return [begun = std::chrono::steady_clock::now()] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    };
}

// Measures what needs no model. The memory for it is given back before executors take theirs.
status measure_device(const cuda_measure_options &options, double budget_s,
                      const std::function<void(const char *)> &say, measured_machine &machine) {
    auto opened = gpu::device_bench::create(options.device, clock_of(options));
    if (!opened) return opened.failure();
    gpu::device_bench &bench = **opened;
    machine.processor = bench.device().name();
    machine.device_bytes = bench.device().total_bytes();
    const uint64_t free_bytes = bench.device().free_bytes();
    machine.device_reserved_bytes = machine.device_bytes -
                                    std::min(free_bytes, machine.device_bytes) +
                                    gpu::cuda_device::reserved_bytes;
    if (const status good = bench.check(); !good) return good;
    say("copies");
    gpu::measure_link(bench, budget_s, options.block_bytes, machine);
    say("launches");
    gpu::measure_launches(bench, budget_s, machine);
    say("memory, matrix units and products");
    gpu::measure_products(bench, budget_s, options.block_bytes, machine);
    return bench.check();
}

}  // namespace

result<measured_machine> measure_cuda(const cuda_measure_options &options) {
    const auto say = [&](const char *stage) {
        if (options.common.progress) options.common.progress(stage);
    };
    const double budget_s = options.common.seconds / measurements;
    measured_machine machine;
    machine.executor = "cuda";
    machine.host_bytes = host_memory_bytes();
    const status done = measure_device(options, budget_s, say, machine);
    if (!done) return done.failure();
    {
        say("memory of the host");
        thread_pool pool(options.common.threads);
        machine.threads = pool.threads();
        machine.host_read_bytes_per_s = measure_read_bandwidth(pool, 2 * budget_s);
    }
    const struct {
        const char *name;
        status (*measure)(const cuda_measure_options &, double, measured_machine &);
    } parts[] = {{"constants of layers and experts", gpu::measure_constants},
                 {"experts of many tokens", gpu::measure_expert_tokens},
                 {"attention", gpu::measure_contexts},
                 {"large experts, and the CPU beside copies", gpu::measure_large_experts},
                 {"experts of a token on the CPU", gpu::measure_cpu_experts}};
    for (const auto &part : parts) {
        say(part.name);
        const status measured = part.measure(options, budget_s, machine);
        if (!measured) return measured.failure();
    }
    return machine;
}

result<device_rates> measure_device_rates(int32_t device) {
    constexpr double budget_s = 0.05;
    cuda_measure_options options;
    measured_machine machine;
    auto opened = gpu::device_bench::create(device, clock_of(options));
    if (!opened) return opened.failure();
    gpu::device_bench &bench = **opened;
    gpu::measure_link(bench, budget_s, options.block_bytes, machine);
    gpu::measure_launches(bench, budget_s, machine);
    gpu::measure_products(bench, budget_s, options.block_bytes, machine);
    if (const status good = bench.check(); !good) return good.failure();
    return device_rates{bench.device().name(), machine.read_bytes_per_s,
                        1 / fit_line(machine.to_device).slope};
}

}  // namespace moorage::core

#endif

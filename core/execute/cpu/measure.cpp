// measure.cpp - measures the CPU part by part, and reads the system's description of it.
#include "core/execute/cpu/measure.h"

#include <algorithm>
#include <fstream>

#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/machine_speed.h"
#include "core/execute/cpu/measure_parts.h"
#include "core/base/memory_block.h"

namespace moorage::core {

namespace {

// Single measurements of all parts together, about.
constexpr double measurements = 75;

}  // namespace

std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("model name")) continue;
        const size_t colon = line.find(':');
        if (colon == std::string::npos) break;
        const size_t begin = line.find_first_not_of(" \t", colon + 1);
        if (begin != std::string::npos) return line.substr(begin);
    }
    return "unnamed processor";
}

result<measured_machine> measure_cpu(const measure_options &options) {
    const auto say = [&](const char *stage) {
        if (options.progress) options.progress(stage);
    };
    const double budget_s = options.seconds / measurements;
    thread_pool pool(options.threads);
    measured_machine machine;
    machine.executor = "cpu";
    machine.processor = processor_name();
    machine.threads = pool.threads();
    machine.is_host = true;
    machine.few_tokens = STREAM_TOKENS_MAX;
    machine.host_bytes = machine.device_bytes = host_memory_bytes();
    machine.device_reserved_bytes =
        machine.host_bytes - std::min(machine.host_bytes, memory_available_bytes());

    say("memory and arithmetic at their best");
    machine.read_bytes_per_s = measure_read_bandwidth(pool, 2 * budget_s);
    if (machine.read_bytes_per_s == 0)
        return error{"memory of 512 MiB to read from is not to be had; end other programs"};
    machine.host_read_bytes_per_s = machine.read_bytes_per_s;
    machine.operations_per_s = measure_multiply_add_rate(pool, 2 * budget_s);
    say("parallel loops");
    measure_loop(pool, budget_s, machine);
    say("products");
    measure_products(pool, budget_s, machine);
    say("experts");
    if (const status done = measure_experts(pool, budget_s, machine); !done) return done.failure();
    say("attention");
    measure_attention(pool, budget_s, machine);
    say("layers and passes");
    if (const status done = measure_layers(pool, budget_s, machine); !done) return done.failure();
    say("copies, alone and beside computing");
    const status done = measure_copies(pool, budget_s, options.expert_bytes, machine);
    if (!done) return done.failure();
    return machine;
}

}  // namespace moorage::core

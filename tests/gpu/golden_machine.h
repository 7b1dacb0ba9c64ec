// golden_machine.h - a golden model on the executor of the GPU, or of the CPU for comparison.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cpu/golden_check.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/executor_drive.h"
#include "core/model/golden.h"

namespace moorage::core {

// The executor that runs the passes, and the objects that it borrows.
struct golden_machine {
    std::unique_ptr<thread_pool> pool;
    std::unique_ptr<cpu_model> compute;
    std::unique_ptr<executor> device_executor;
    const pass_results *results = nullptr;
};

inline result<golden_machine> make_golden_machine(const gpu_executor_options &options,
                                                  bool on_cpu) {
    golden_machine machine;
    if (!on_cpu) {
        auto gpu = make_cuda_executor(options);
        if (!gpu) return gpu.failure();
        machine.device_executor = std::move(gpu->device_executor);
        machine.results = gpu->results;
        return {std::move(machine)};
    }
    machine.pool = std::make_unique<thread_pool>(options.threads);
    auto compute = cpu_model::create(*options.source_model, *machine.pool, options.limits);
    if (!compute) return compute.failure();
    machine.compute = std::move(*compute);
    machine.results = machine.compute.get();
    auto cpu = cpu_executor::create({options.source_model, machine.compute.get(),
                                     options.places.arenas.front(), options.transfers_max, false});
    if (!cpu) return cpu.failure();
    machine.device_executor = std::move(*cpu);
    return {std::move(machine)};
}

// Layouts of a golden model on the machine: everything resident, few slots, split, with the CPU's
// help, and with predictions.
struct golden_layout {
    const char *name;
    drive_options drive_setup;
};
inline std::array<golden_layout, 5> golden_layouts(const model &golden_model) {
    const uint32_t experts = golden_model.config().experts;
    const auto pages = static_cast<uint32_t>(golden_model.config().moe_layers().size()) * experts;
    const bool can_split =
        top_rows(golden_model.config().moe_intermediate, 0.5, golden_model.config().part_unit) <
        golden_model.config().moe_intermediate;
    return {{{"resident", {pages, 1, 0, false, 1}},
             {"half the experts of a layer", {experts / 2 + 1, 1, 0, false, 2}},
             {"split", {experts, can_split ? 0.5 : 1, 0, false, 3}},
             {"with the CPU", {experts / 2 + 1, 1, 0.5, false, 4}},
             {"with predictions", {experts / 2 + 1, 1, 0.5, false, 4, true}}}};
}

struct golden_outcome {
    double error = 0;
    uint32_t greedy_equal = 0;
    std::string failure;
};

// options: it uses threads, patience and precision.
inline golden_outcome run_golden(const model &golden_model, const golden_data &golden,
                                 const drive_options &drive_setup, gpu_executor_options options,
                                 bool on_cpu) {
    executor_drive drive(golden_model, drive_setup);
    options.source_model = &golden_model;
    options.places = &drive.places;
    options.limits = golden_limits(golden);
    options.limits.predict = drive_setup.predict;
    options.transfers_max = drive.transfers_max();
    auto machine = make_golden_machine(options, on_cpu);
    if (!machine) return {0, 0, machine.failure().text};
    drive.use(*machine->device_executor, *machine->results);
    const auto report = check_golden(golden, drive, *machine->results, golden_model.config().rope);
    if (!report) return {0, 0, report.failure().text};
    return {report->logits_error, report->greedy_equal, ""};
}

}  // namespace moorage::core

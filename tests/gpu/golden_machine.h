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
    std::unique_ptr<executor> where;
    const pass_results *results = nullptr;
};

inline result<golden_machine> make_golden_machine(const gpu_executor_options &options,
                                                  bool on_cpu) {
    golden_machine out;
    if (!on_cpu) {
        auto made = make_cuda_executor(options);
        if (!made) return made.failure();
        out.where = std::move(made->where);
        out.results = made->results;
        return {std::move(out)};
    }
    out.pool = std::make_unique<thread_pool>(options.threads);
    auto compute = cpu_model::create(*options.of, *out.pool, options.limits);
    if (!compute) return compute.failure();
    out.compute = std::move(*compute);
    out.results = out.compute.get();
    auto where = cpu_executor::create(
        {options.of, out.compute.get(), options.places.each.front(), options.transfers_max, false});
    if (!where) return where.failure();
    out.where = std::move(*where);
    return {std::move(out)};
}

// Layouts of a golden model on the machine: everything resident, few slots, split, with the CPU's
// help, and with predictions.
struct golden_layout {
    const char *name;
    drive_options how;
};
inline std::array<golden_layout, 5> golden_layouts(const model &of) {
    const uint32_t experts = of.config().experts;
    const auto pages = static_cast<uint32_t>(of.config().moe_layers().size()) * experts;
    const bool can_split = top_rows(of.config().moe_intermediate, 0.5, of.config().part_unit) <
                           of.config().moe_intermediate;
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
inline golden_outcome run_golden(const model &of, const golden_data &golden,
                                 const drive_options &how, gpu_executor_options options,
                                 bool on_cpu) {
    executor_drive drive(of, how);
    options.of = &of;
    options.places = &drive.places;
    options.limits = golden_limits(golden);
    options.limits.predict = how.predict;
    options.transfers_max = drive.transfers_max();
    auto made = make_golden_machine(options, on_cpu);
    if (!made) return {0, 0, made.failure().text};
    drive.use(*made->where, *made->results);
    const auto report = check_golden(golden, drive, *made->results, of.config().rope);
    if (!report) return {0, 0, report.failure().text};
    return {report->logits_error, report->greedy_equal, ""};
}

}  // namespace moorage::core

// cpu_module.cpp - the CPU as an executor.
#include <memory>
#include <utility>

#include "core/base/text.h"
#include "core/execute/cpu/activation_form.h"
#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cpu/expert_batch.h"
#include "core/execute/cpu/golden_check.h"
#include "core/execute/cpu/kernels_codes.h"
#include "core/execute/cpu/measure.h"
#include "core/execute/executor_module.h"

namespace moorage::core {

namespace {

// Arithmetic with threads of its own.
struct pooled_compute {
    thread_pool pool;
    std::unique_ptr<cpu_model> compute;
    pooled_compute(uint32_t threads, arithmetic mode) : pool(threads, mode) {}
};

result<std::shared_ptr<pooled_compute>> make_pooled(const model &model, uint32_t threads,
                                                    arithmetic mode, const compute_limits &limits) {
    auto pooled = std::make_shared<pooled_compute>(threads, mode);
    auto compute = cpu_model::create(model, pooled->pool, limits);
    if (!compute) return compute.failure();
    pooled->compute = std::move(compute).value();
    return pooled;
}

class cpu_machine final : public executor_machine {
public:
    static result<std::unique_ptr<executor_machine>> create(const executor_request &request) {
        auto machine = std::make_unique<cpu_machine>();
        auto pooled = make_pooled(*request.computed_model, request.threads, request.arithmetic_mode,
                                  request.limits);
        if (!pooled) return pooled.failure();
        machine->compute_ = std::move(pooled).value();
        auto executor = cpu_executor::create({.source_model = request.computed_model,
                                              .compute = machine->compute_->compute.get(),
                                              .places = request.places.arenas.front(),
                                              .transfers_max = request.transfers_max,
                                              .in_place = request.in_place,
                                              .from_disk = request.from_disk,
                                              .small_model = request.small_model});
        if (!executor) return executor.failure();
        machine->executor_ = std::move(executor).value();
        return {std::move(machine)};
    }
    static result<std::shared_ptr<model_compute>> compute(const model &model, uint32_t threads,
                                                          arithmetic mode,
                                                          const compute_limits &limits) {
        auto pooled = make_pooled(model, threads, mode, limits);
        if (!pooled) return pooled.failure();
        return std::shared_ptr<model_compute>(*pooled, (*pooled)->compute.get());
    }
    static executor_probe probe() { return {{processor_name()}, {}}; }
    static result<golden_results> check(const model &model, const golden_data &golden,
                                        uint32_t threads) {
        thread_pool pool(threads), fast_pool(threads, arithmetic::fast);
        auto exact = check_golden(model, golden, pool);
        if (!exact) return exact.failure();
        auto fast = check_golden(model, golden, fast_pool);
        if (!fast) return fast.failure();
        return golden_results{std::move(*exact), std::move(*fast)};
    }
    executor &run_executor() override { return *executor_; }
    const pass_results *results() const override { return compute_->compute.get(); }

private:
    std::shared_ptr<pooled_compute> compute_;  // executor_ borrows it
    std::unique_ptr<executor> executor_;
};

result<std::unique_ptr<node_compute>> compute_of_home(const model &model, thread_pool &pool,
                                                      const compute_limits &limits) {
    auto compute = cpu_model::create(model, pool, limits);
    if (!compute) return compute.failure();
    return std::unique_ptr<node_compute>(std::move(*compute));
}

result<std::unique_ptr<executor>> executor_of_home(const home_request &request) {
    auto created = cpu_executor::create({.source_model = request.computed_model,
                                         .compute = static_cast<cpu_model *>(request.compute),
                                         .places = request.places,
                                         .transfers_max = request.transfers_max,
                                         .in_place = true,
                                         .beside = request.beside});
    if (!created) return created.failure();
    return std::unique_ptr<executor>(std::move(*created));
}

std::unique_ptr<joined_experts> join_experts(const model_config &config, thread_pool &pool) {
    return std::make_unique<expert_batch>(config, pool);
}

// With the size of a block that shares a scale: a build that rounds otherwise computes another
// model.
std::string describe_numbers(weight_type type, arithmetic mode) {
    switch (form_of(mode, type)) {
        case activation_form::codes:
            return format("codes of {}", CODE_BLOCK);
        case activation_form::bfloats:
            return format("pairs by {}", pair_kernel_name());
        default:
            return "floats";
    }
}

constexpr node_arithmetic cpu_for_nodes = {.compute = compute_of_home,
                                           .create = executor_of_home,
                                           .join = join_experts,
                                           .describe = describe_numbers};

}  // namespace

extern const executor_module cpu_module;
const executor_module cpu_module = {.name = "cpu",
                                    .probe = cpu_machine::probe,
                                    .create = cpu_machine::create,
                                    .measure = measure_cpu,
                                    .check_golden = cpu_machine::check,
                                    .compute = cpu_machine::compute,
                                    .node = &cpu_for_nodes};

}  // namespace moorage::core

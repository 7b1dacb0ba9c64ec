// cpu_experts.cpp - the thread that runs the CPU's kernels over the pinned images.
#include "core/execute/gpu/cpu_experts.h"

#include <cassert>

namespace moorage::core::gpu {

cpu_experts::cpu_experts(const model &model, const pinned_experts &experts, uint32_t threads)
    : config_(model.config()),
      experts_(experts),
      threads_(threads),
      thread_([this](uint32_t) { compute(); }) {}

void cpu_experts::start(std::span<const cpu_task> tasks, const float *inputs) {
    assert(!busy() && !tasks.empty());
    tasks_.assign(tasks.begin(), tasks.end());
    inputs_ = inputs;
    thread_.start();
}

// Top segments of all tasks in one parallel loop, then the bottom ones.
void cpu_experts::compute() {
    if (!pool_) {
        // Activations as the GPU has them. So the choice of CPU or GPU changes only the last bits.
        pool_ = std::make_unique<thread_pool>(threads_, arithmetic::exact);
        kernel_ = std::make_unique<mlp_kernel>(*pool_);
    }
    views_.resize(tasks_.size());
    calls_.resize(tasks_.size());
    for (uint32_t segment = 0; segment < 2; ++segment) {
        // All tasks are of one layer.
        if (experts_.rows(tasks_.front().page, segment) == 0) continue;
        for (size_t i = 0; i < tasks_.size(); ++i) {
            const cpu_task &task = tasks_[i];
            views_[i] = experts_.view(task.page, segment, experts_.image(task.page, segment));
            mlp_call &call = calls_[i];
            call.weights = &views_[i];
            call.intermediate = config_.moe_intermediate;
            call.unit = config_.part_unit;
            call.first = experts_.first_row(task.page, segment);
            call.count = experts_.rows(task.page, segment);
            call.activation = config_.activation;
            call.limit = static_cast<float>(config_.activation_limit);
            call.tokens = static_cast<uint32_t>(task.tokens.size());
            call.gathered = task.tokens.data();
            call.input = {inputs_, config_.hidden};
            call.output = {task.output, config_.hidden};
            call.add = segment == 1;
        }
        (*kernel_)(calls_);
    }
}

}  // namespace moorage::core::gpu

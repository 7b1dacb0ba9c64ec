// cpu_experts.cpp - the thread that runs the CPU's kernels over the pinned images.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cpu_experts.h"

#include <cassert>
#include <chrono>

namespace moorage::core::cuda {

cpu_experts::cpu_experts(const model &of, const pinned_experts &experts, uint32_t threads)
    : config_(of.config()), experts_(experts), threads_(threads), thread_([this] { loop(); }) {}

cpu_experts::~cpu_experts() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wanted_.notify_one();
    thread_.join();
}

void cpu_experts::start(std::span<const cpu_task> tasks, const float *inputs) {
    assert(!busy_ && !tasks.empty());
    busy_ = true;
    {
        const std::lock_guard lock(mutex_);
        tasks_.assign(tasks.begin(), tasks.end());
        inputs_ = inputs;
        finished_ = false;
        pending_ = true;
    }
    wanted_.notify_one();
}

bool cpu_experts::done() {
    if (!busy_ || !finished_.load(std::memory_order_acquire)) return false;
    busy_ = false;
    return true;
}

void cpu_experts::loop() {
    std::unique_lock lock(mutex_);
    std::unique_ptr<thread_pool> pool;
    std::unique_ptr<mlp_kernel> kernel;
    for (;;) {
        wanted_.wait(lock, [&] { return stop_ || pending_; });
        if (stop_) return;
        pending_ = false;
        lock.unlock();
        if (!pool) {
            pool = std::make_unique<thread_pool>(threads_);
            kernel = std::make_unique<mlp_kernel>(*pool);
        }
        compute(*kernel);
        finished_.store(true, std::memory_order_release);
        lock.lock();
    }
}

// Top segments of all tasks in one parallel loop, then the bottom ones.
void cpu_experts::compute(mlp_kernel &kernel) {
    const auto begun = std::chrono::steady_clock::now();
    std::vector<mlp_weights> views(tasks_.size());
    std::vector<mlp_call> calls(tasks_.size());
    for (uint32_t segment = 0; segment < 2; ++segment) {
        // All tasks are of one layer.
        if (experts_.rows(tasks_.front().page, segment) == 0) continue;
        for (size_t i = 0; i < tasks_.size(); ++i) {
            const cpu_task &task = tasks_[i];
            views[i] = experts_.view(task.page, segment, experts_.image(task.page, segment));
            mlp_call &call = calls[i];
            call.weights = &views[i];
            call.intermediate = config_.moe_intermediate;
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
        kernel(calls);
    }
    const auto taken = std::chrono::steady_clock::now() - begun;
    const auto taken_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count());
    for (cpu_task &task : tasks_) task.duration_ns = taken_ns / tasks_.size();
}

}  // namespace moorage::core::cuda

#endif

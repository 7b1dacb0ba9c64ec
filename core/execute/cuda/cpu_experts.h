// cpu_experts.h - experts that the CPU computes while the GPU works: a thread beside the caller's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/thread_pool.h"
#include "core/execute/cuda/pinned_experts.h"

namespace moorage::core::cuda {

struct cpu_task {
    uint32_t page, tag;
    std::span<const uint32_t> tokens;  // rows of the inputs
    float *output;                     // [tokens, hidden]
    uint64_t duration_ns;              // filled in
};

class cpu_experts {
public:
    // `experts` is borrowed. Threads of the pool start with the first task.
    cpu_experts(const model &of, const pinned_experts &experts, uint32_t threads);
    ~cpu_experts();

    // Hands tasks over; Requires: none is under way. inputs [tokens, hidden] and what the tasks
    // point to stay until done().
    void start(std::span<const cpu_task> tasks, const float *inputs);
    bool busy() const { return busy_; }
    // Whether all tasks handed over are computed; then tasks() are they, and busy() ends.
    bool done();
    std::span<const cpu_task> tasks() const { return tasks_; }

private:
    void loop();
    void compute(mlp_kernel &kernel);

    const model_config &config_;
    const pinned_experts &experts_;
    uint32_t threads_;
    std::vector<cpu_task> tasks_;
    const float *inputs_ = nullptr;
    bool busy_ = false;
    std::atomic<bool> finished_{false};
    std::mutex mutex_;
    std::condition_variable wanted_;
    bool pending_ = false, stop_ = false;
    std::thread thread_;
};

}  // namespace moorage::core::cuda

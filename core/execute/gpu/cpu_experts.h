// cpu_experts.h - experts that the CPU computes while the GPU works, on a thread beside the
// caller's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/execute/cpu/kernels.h"
#include "core/execute/thread_pool.h"
#include "core/execute/gpu/pinned_experts.h"
#include "core/execute/side_thread.h"

namespace moorage::core::gpu {

struct cpu_task {
    uint32_t page, tag;
    std::span<const uint32_t> tokens;  // rows of the inputs
    float *output;                     // [tokens, hidden]
};

class cpu_experts {
public:
    // `experts` is borrowed. Threads of the pool start with the first task.
    cpu_experts(const model &model, const pinned_experts &experts, uint32_t threads);

    // Hands tasks over. Requires: none is under way. inputs are [tokens, hidden]. They and
    // everything that the tasks point to stay until done().
    void start(std::span<const cpu_task> tasks, const float *inputs);
    bool busy() const { return thread_.busy(); }
    // Whether all tasks handed over are computed. Then tasks() returns them, and busy() ends.
    bool done() { return thread_.try_finish(); }
    // Mean of the tasks.
    uint64_t duration_ns() const { return thread_.duration_ns() / tasks_.size(); }
    std::span<const cpu_task> tasks() const { return tasks_; }

private:
    void compute();

    const model_config &config_;
    const pinned_experts &experts_;
    uint32_t threads_;
    std::vector<cpu_task> tasks_;
    const float *inputs_ = nullptr;
    std::unique_ptr<thread_pool> pool_;  // for that thread, like the members below; made with the
                                         // first task
    std::unique_ptr<mlp_kernel> kernel_;
    std::vector<mlp_weights> views_;
    std::vector<mlp_call> calls_;
    side_thread thread_;
};

}  // namespace moorage::core::gpu

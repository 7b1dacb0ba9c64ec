// gpu_memory.h - counts the memory of a run on a GPU and in pinned host memory before it is taken.
// A run that has no room, or that the kernels cannot compute, is refused.
#pragma once

#include "core/base/result.h"
#include "core/execute/gpu/forward_buffers.h"
#include "core/execute/gpu/gpu_executor.h"
#include "core/execute/gpu/pinned_experts.h"

namespace moorage::core::gpu {

forward_limits limits_of(const gpu_executor_options &options, uint64_t workspace_bytes);

// Memory of a run on a GPU, beside the experts.
struct gpu_needs {
    uint64_t weights_bytes = 0, buffers_bytes = 0;  // on the GPU
    uint64_t pinned_bytes = 0;                      // of host memory
};
// `first`: the device computes everything but other devices' experts. Otherwise only its own
// experts.
gpu_needs needs_of(const model &model, const forward_limits &limits, bool first = true);

struct gpu_capacity {
    std::string name;
    uint64_t free_bytes = 0;
    uint64_t reserved_bytes = 0;  // the part of the free bytes that the driver and its modules
                                  // still take
    uint32_t shared_bytes = 0;    // shared memory of a block
};

// An error if the kernels cannot compute the model. It names the executor.
status check_model(const model &model, const char *executor);
// A launch has a block for each token, along a side of its grid that is not the first.
inline constexpr uint32_t pass_tokens_max = 65535;
status check_pass(const forward_limits &limits, const char *executor);
// Checks the number-th GPU of the run. Errors here and below name the sizes and a remedy.
status check_room(const gpu_executor_options &options, const forward_limits &limits,
                  uint32_t number, const gpu_needs &needs, const gpu_capacity &offer,
                  const pinned_experts &experts);
// `bytes`: pinned host memory for everything.
status check_pinned(const gpu_executor_options &options, uint64_t bytes);

}  // namespace moorage::core::gpu

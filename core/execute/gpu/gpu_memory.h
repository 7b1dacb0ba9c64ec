// gpu_memory.h - what a run takes on a GPU and in pinned host memory, counted before it is taken;
// what has no room there, or is not computed there, is refused.
#pragma once

#include "core/base/result.h"
#include "core/execute/gpu/forward_buffers.h"
#include "core/execute/gpu/gpu_executor.h"
#include "core/execute/gpu/pinned_experts.h"

namespace moorage::core::gpu {

forward_limits limits_of(const gpu_executor_options &options, uint64_t workspace_bytes);

// Of a run on a GPU, beside the experts.
struct gpu_needs {
    uint64_t weights_bytes = 0, buffers_bytes = 0;  // on the GPU
    uint64_t pinned_bytes = 0;                      // of host memory
};
// `first`: it computes all but other devices' experts; else its own experts alone.
gpu_needs needs_of(const model &of, const forward_limits &limits, bool first = true);

struct gpu_offer {
    std::string name;
    uint64_t free_bytes = 0;
    uint64_t reserved_bytes = 0;  // of the free ones, what the driver and its modules still take
    uint32_t shared_bytes = 0;    // of a block
};

// What the kernels do not compute, by the name of the executor.
status check_model(const model &of, const char *executor);
// A launch has a block for each token, along a side of its grid that is not the first.
inline constexpr uint32_t pass_tokens_max = 65535;
status check_pass(const forward_limits &limits, const char *executor);
// Of the number-th GPU of the run. Errors name the sizes and a remedy, as those below.
status check_room(const gpu_executor_options &options, const forward_limits &limits,
                  uint32_t number, const gpu_needs &needs, const gpu_offer &offer,
                  const pinned_experts &experts);
// `bytes`: of pinned host memory, for all there is.
status check_pinned(const gpu_executor_options &options, uint64_t bytes);

}  // namespace moorage::core::gpu

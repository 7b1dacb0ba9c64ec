// cuda_executor.h - the executor on an NVIDIA GPU: gpu/gpu_run.h over CUDA.
#pragma once

#include "core/base/result.h"
#include "core/execute/gpu/gpu_executor.h"

namespace moorage::core {

// Refused with sizes and a remedy when GPU or host memory would not do.
result<gpu_machine> make_cuda_executor(const gpu_executor_options &options);

// What the GPU has left for expert slots beside everything else of such a run, in bytes; `of`,
// `limits`, `device` and `exact` are looked at. Errors as above.
result<uint64_t> cuda_room_for_experts(const gpu_executor_options &options);

}  // namespace moorage::core

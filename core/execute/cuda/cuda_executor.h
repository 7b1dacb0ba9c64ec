// cuda_executor.h - the executor on an NVIDIA GPU: gpu/gpu_run.h over CUDA.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/execute/gpu/gpu_executor.h"

namespace moorage::core {

// Refused with sizes and a remedy if GPU or host memory does not suffice.
result<gpu_machine> make_cuda_executor(const gpu_executor_options &options);

// The GPU memory that such a run leaves for expert slots, in bytes. Reads `source_model`,
// `limits`, `device` and `exact`. Errors as above.
result<uint64_t> cuda_room_for_experts(const gpu_executor_options &options);

// The names of all GPUs, by number: "NVIDIA H200". An error if there is none.
result<std::vector<std::string>> cuda_device_names();

}  // namespace moorage::core

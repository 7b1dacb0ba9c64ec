// cuda_executor.cpp - the one place where the executor on a GPU is compiled for CUDA.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_executor.h"

#include "core/execute/cuda/cuda_device.h"
#include "core/execute/gpu/gpu_run.h"

namespace moorage::core {

// Only files compiled for the GPU make it.
extern template class gpu::forward<gpu::cuda_device>;

result<gpu_machine> make_cuda_executor(const gpu_executor_options &options) {
    return gpu::gpu_run<gpu::cuda_device>::create(options);
}

result<uint64_t> cuda_room_for_experts(const gpu_executor_options &options) {
    return gpu::room_for_experts<gpu::cuda_device>(options);
}

result<std::vector<std::string>> cuda_device_names() { return gpu::cuda_device::names(); }

}  // namespace moorage::core

#endif

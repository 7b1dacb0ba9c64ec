// cuda_launch.cuh - launches kernels. Only files that are compiled for the GPU include it.
#pragma once

#include "core/execute/cuda/cuda_device.h"
#include "core/execute/cuda/device_team.cuh"

namespace moorage::core::gpu {

template <class Kernel>
void cuda_device::launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z,
                         uint32_t shared_bytes) {
    launch_function(reinterpret_cast<const void *>(&run_kernel<Kernel>), &kernel,
                    {x, y, z, Kernel::threads, shared_bytes});
}

}  // namespace moorage::core::gpu

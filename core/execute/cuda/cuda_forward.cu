// cuda_forward.cu - all that is compiled for the GPU: the kernels that a pass launches, and those
// that are only timed.
#include "core/execute/cuda/cuda_launch.cuh"
#include "core/execute/cuda/cuda_products.h"
#include "core/execute/gpu/forward.h"
#include "core/execute/gpu/measured_launches.h"

namespace moorage::core::gpu {

const void *cuda_device::any_kernel() {
    return reinterpret_cast<const void *>(&run_kernel<embed_kernel>);
}

template class forward<cuda_device>;
template void launch_nothing(cuda_device &);
template void launch_product(cuda_device &, const product_item &);

}  // namespace moorage::core::gpu

// cuda_forward.cu - all that is compiled for the GPU: the kernels that a pass launches.
#include "core/execute/cuda/cuda_launch.cuh"
#include "core/execute/cuda/cuda_products.h"
#include "core/execute/cuda/forward.h"

namespace moorage::core::cuda {

template class forward<cuda_device>;

}  // namespace moorage::core::cuda

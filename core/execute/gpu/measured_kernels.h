// measured_kernels.h - launches whose time is measured alone; measured_launches.h has them.
#pragma once

#include "core/execute/gpu/arithmetic/product.h"

namespace moorage::core::gpu {

// A kernel that does nothing.
template <class Device>
void launch_nothing(Device &device);

// A product of item.count tokens, by the kernels that forward.h picks for it.
template <class Device>
void launch_product(Device &device, const product_item &item);

}  // namespace moorage::core::gpu

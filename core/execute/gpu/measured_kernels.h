// measured_kernels.h - launches whose time is measured alone. Their bodies are in
// measured_launches.h.
#pragma once

#include "core/execute/gpu/arithmetic/product.h"

namespace moorage::core::gpu {

// A kernel that does nothing.
template <class Device>
void launch_nothing(Device &device);

// A product of item.count tokens, by the kernels that forward.h would choose.
template <class Device>
void launch_product(Device &device, const product_item &item);

}  // namespace moorage::core::gpu

// host_blocks.cpp - the kernels of the executor over host_team, for all tests that run them.
#include "tests/unit/host_blocks.h"

#include "core/execute/gpu/measured_launches.h"
#include "tests/unit/emulated_device.h"

namespace moorage::core::gpu {

// Not inlined, so that there is a function to call.
template <class Kernel>
[[gnu::noinline]] void run_blocks(const Kernel &kernel, host_team &team, uint32_t x, uint32_t y,
                                  uint32_t z) {
    run_each_block(kernel, team, x, y, z);
}

// Instantiates the kernels that these launch. There are no others.
template class forward<emulated_device>;
template void launch_nothing(emulated_device &);
template void launch_product(emulated_device &, const product_item &);
// Around products of the library, which emulated_device has not.
template void run_blocks(const halve_kernel &, host_team &, uint32_t, uint32_t, uint32_t);
template void run_blocks(const bias_kernel &, host_team &, uint32_t, uint32_t, uint32_t);

}  // namespace moorage::core::gpu

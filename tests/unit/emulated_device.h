// emulated_device.h - a GPU made of loops: launches run at once, block by block, on the CPU.
#pragma once

#include "core/execute/cuda/forward.h"
#include "tests/unit/host_team.h"

namespace moorage::core::cuda {

class emulated_device {
public:
    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t shared_bytes) {
        host_team team(Kernel::threads, shared_bytes);
        for (team.block_z = 0; team.block_z < z; ++team.block_z)
            for (team.block_y = 0; team.block_y < y; ++team.block_y)
                for (team.block_x = 0; team.block_x < x; ++team.block_x) {
                    team.poison();
                    kernel(team);
                }
        ++launches;
    }
    void copy_in(void *device, const void *pinned, uint64_t bytes) {
        std::memcpy(device, pinned, bytes);
    }
    void copy_out(void *pinned, const void *device, uint64_t bytes) {
        std::memcpy(pinned, device, bytes);
    }
    void upload(void *device, const void *host, uint64_t bytes) {
        std::memcpy(device, host, bytes);
    }
    // No library: the kernel of one's own does it.
    bool product_of_many(const product_item &, uint32_t) { return false; }
    uint32_t multiprocessors() const { return 4; }

    uint64_t launches = 0;
};

}  // namespace moorage::core::cuda

// host_blocks.h - a launch's blocks on the CPU, one after the other.
#pragma once

#include "tests/unit/host_team.h"

namespace moorage::core::gpu {

template <class Kernel, class Team>
void run_each_block(const Kernel &kernel, Team &team, uint32_t x, uint32_t y, uint32_t z) {
    for (team.block_z = 0; team.block_z < z; ++team.block_z)
        for (team.block_y = 0; team.block_y < y; ++team.block_y)
            for (team.block_x = 0; team.block_x < x; ++team.block_x) {
                team.poison();
                kernel(team);
            }
}

// Compiled once, in host_blocks.cpp, for every kernel that the executor launches, because all
// formats take half a minute.
template <class Kernel>
void run_blocks(const Kernel &kernel, host_team &team, uint32_t x, uint32_t y, uint32_t z);

}  // namespace moorage::core::gpu

// one_gpu.h - a machine with one GPU and a CPU, as dispatch policies see it.
#pragma once

#include <moorage/dispatch.h>

namespace moorage::test {

// Devices by their numbers; servers come after them.
inline constexpr uint32_t gpu_device = 0, cpu_device = 1, first_server = 2;

// Requires: at most 4,096 items.
inline void place_on_first_gpu(moorage_items &items) {
    static constexpr uint32_t first_device[4096] = {};
    items.devices = first_server;
    items.gpus = 1;
    items.host_device = first_device;
}

}  // namespace moorage::test

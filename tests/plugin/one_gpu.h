// one_gpu.h - a machine with one GPU and a CPU, as dispatch policies see it.
#pragma once

#include <moorage/dispatch.h>

namespace moorage::test {

// Devices by their numbers; servers come after them.
inline constexpr uint32_t gpu_device = 0, cpu_device = 1, first_server = 2;

// Requires: at most 4,096 items.
inline void on_one_gpu(moorage_items &items) {
    static constexpr uint32_t own[4096] = {};
    items.devices = first_server;
    items.gpus = 1;
    items.host_device = own;
}

}  // namespace moorage::test

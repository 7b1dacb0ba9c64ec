// cuda_measure.h - measures a GPU, its link and the CPU beside it, as the executor uses them.
//
//   const auto machine = measure_cuda({.common = {.seconds = 20}});
//   if (!machine) return machine.failure();   // no GPU, not in this build, not enough memory
#pragma once

#include <functional>
#include <string>

#include "core/base/result.h"
#include "core/execute/measure.h"

namespace moorage::core {

struct cuda_measure_options {
    measure_options common;
    int32_t device = 0;
    // The largest set of weights that is read on the GPU. It is far above the size of its caches.
    uint64_t block_bytes = uint64_t{1} << 30;
    uint32_t context_max = 16384;  // longest past that attention looks back on
    // Seconds since any beginning, of the host. Empty: the steady clock. For tests that pretend a
    // GPU's time: they have to pretend the host's time too.
    std::function<double()> now = {};
};

// Everything of measured_machine but the date and the figures of whole models.
result<measured_machine> measure_cuda(const cuda_measure_options &options);

// The limits of decode: the best rate of memory, and large copies from pinned host memory.
struct device_rates {
    std::string name;
    double memory_bytes_per_s = 0, h2d_bytes_per_s = 0;
};
result<device_rates> measure_device_rates(int32_t device);

}  // namespace moorage::core

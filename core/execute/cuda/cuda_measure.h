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
    // The largest set of weights read, on the GPU: far above its caches.
    uint64_t block_bytes = uint64_t{1} << 30;
    uint32_t context_max = 16384;  // longest past that attention looks back on
    // Seconds since any beginning, of the host; empty: the steady clock. For tests, which pretend
    // the GPU's time and have to pretend the host's too.
    std::function<double()> now = {};
};

// Everything of measured_machine but the date and what whole models tell.
result<measured_machine> measure_cuda(const cuda_measure_options &options);

// What decode is bounded by: memory at its best, large copies from pinned host memory.
struct device_rates {
    std::string name;
    double memory_bytes_per_s = 0, h2d_bytes_per_s = 0;
};
result<device_rates> measure_device_rates(int32_t device);

}  // namespace moorage::core

// gpu_executor.h - the options of an executor on a GPU, and its parts: real arithmetic, wall clock,
// experts in host memory.
//
//   auto machine = make_cuda_executor({.source_model = &opened, .places = &slots, ...});
//   if (!machine) return machine.failure();      // no GPU, not enough memory, not in this build
//   pipeline runs over *machine->device_executor; the model source reads *machine->results
//
// All weights but those of routed experts are on the GPU, and so are the caches of keys and values.
// Routed experts are packed once into pinned host memory, as images of their segments. Or they are
// read there from disk when the pipeline asks for them. Loads copy images into the slots of an
// arena on the GPU. The CPU computes the experts that the dispatch policy leaves to it, from the
// pinned images, while the GPU and the copies go on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/execute/executor.h"
#include "core/execute/model_compute.h"
#include "core/model/model.h"
#include "core/source/pass_results.h"
#include "core/store/device_arenas.h"

namespace moorage::core {

struct gpu_executor_options {
    const model *source_model = nullptr;  // borrowed
    device_arenas places;                 // one GPU for each arena
    // Rows of host memory into which experts are read from disk, each as a whole. Borrowed. null:
    // host memory holds all experts. Requires: with rows, the division of `places` stays as it is
    // at first.
    const arena *host_places = nullptr;
    compute_limits limits;       // keep_hidden is not offered
    uint32_t transfers_max = 0;  // ids of transfers are below it
    uint32_t threads = 0;        // of experts on the CPU; 0: one a core but one
    // Number of the GPU, as the driver's tool counts the visible ones. Further GPUs follow it.
    int32_t device = 0;
    // If a GPU completes nothing for so long, it is taken to hang, and the run ends with a failure.
    double patience_s = 120;
    bool exact = false;  // caches in float, more bits in matrix units; to compare with references
};

struct gpu_machine {
    std::unique_ptr<executor> device_executor;
    const pass_results *results = nullptr;  // results of `device_executor`
    std::string device;                     // "NVIDIA H200", "NVIDIA L4 + NVIDIA L4"
    uint64_t device_bytes = 0;              // memory taken on the GPUs
    uint64_t pinned_bytes = 0;              // of host memory
};

}  // namespace moorage::core

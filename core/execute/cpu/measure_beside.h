// measure_beside.h - measures experts that the CPU computes while another one is copied, on any
// executor.
#pragma once

#include "core/base/result.h"
#include "core/execute/executor.h"
#include "core/execute/measure.h"

namespace moorage::core {

struct beside_options {
    uint32_t experts = 4;  // of the layer under way, all of them chosen; page 0 has a slot
    uint64_t expert_bytes = 0;
};

// Seconds of a piece on its way to the device. Requires: nothing else is under way.
double copy_piece(executor &executor, uint32_t page, uint64_t offset, uint64_t bytes);

// Copies page 0. Until it has been copied, other experts are computed on the CPU. Fills
// compute_share, copy_share, together_bytes_per_s, and expert_memory_bytes_per_s with the CPU's
// rate alone. Requires: the layer's choice is known, nothing is under way.
status measure_beside(executor &executor, const beside_options &options, double budget_s,
                      measured_machine &machine);

}  // namespace moorage::core

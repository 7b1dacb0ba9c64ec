// measure_parts.h - the parts of measure_cuda(): each fills its figures of a machine.
//
// budget_s: seconds for each single measurement, of which a part makes several.
#pragma once

#include "core/execute/cuda/cuda_measure.h"
#include "core/execute/cuda/device_bench.h"

namespace moorage::core::gpu {

// Copies of one piece each way, by bytes, from and to pinned memory.
void measure_link(device_bench &bench, double budget_s, uint64_t block_bytes,
                  measured_machine &machine);
// A launch, and the hand-over of a result to the host.
void measure_launches(device_bench &bench, double budget_s, measured_machine &machine);
// Memory and matrix units at their best; products by shape, type and tokens; sets of weights by
// size. Requires: launches have been measured.
void measure_products(device_bench &bench, double budget_s, uint64_t block_bytes,
                      measured_machine &machine);
// By the executor over small models: constants of experts, layers and passes, on GPU and CPU.
status measure_constants(const cuda_measure_options &options, double budget_s,
                         measured_machine &machine);
// Experts of one token by the CPU, several at once, by their bytes. After measure_large_experts,
// whose figure holds where no line can be fitted.
status measure_cpu_experts(const cuda_measure_options &options, double budget_s,
                           measured_machine &machine);
// An expert by tokens, on GPU and CPU.
status measure_expert_tokens(const cuda_measure_options &options, double budget_s,
                             measured_machine &machine);
// Attention of one token by positions.
status measure_contexts(const cuda_measure_options &options, double budget_s,
                        measured_machine &machine);
// Large experts read from the GPU's memory; by the CPU from the host's, alone and beside copies.
status measure_large_experts(const cuda_measure_options &options, double budget_s,
                             measured_machine &machine);

}  // namespace moorage::core::gpu

// measure_parts.h - the parts of measure_cpu(): each fills its figures of a machine.
//
// budget_s: seconds for each single measurement. A part makes several measurements.
#pragma once

#include "core/base/result.h"
#include "core/execute/thread_pool.h"
#include "core/execute/measure.h"

namespace moorage::core {

// Matrix products by shape, type and tokens. Sets of weights by size.
void measure_products(thread_pool &pool, double budget_s, measured_machine &machine);
// The constants of a loop over experts and of each expert. An expert by tokens.
status measure_experts(thread_pool &pool, double budget_s, measured_machine &machine);
// Attention of one token by positions.
void measure_attention(thread_pool &pool, double budget_s, measured_machine &machine);
// The time to enter a parallel loop.
void measure_loop(thread_pool &pool, double budget_s, measured_machine &machine);
// The constants of a layer and of a pass, from small models.
status measure_layers(thread_pool &pool, double budget_s, measured_machine &machine);
// Copies into slots by the executor, alone and while computing. Experts read from memory.
status measure_copies(thread_pool &pool, double budget_s, uint64_t expert_bytes,
                      measured_machine &machine);

}  // namespace moorage::core

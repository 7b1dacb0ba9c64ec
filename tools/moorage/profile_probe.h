// profile_probe.h - runs small models with pipeline and policies, to measure a machine.
#pragma once

#include "core/base/result.h"
#include "core/execute/measure.h"

namespace moorage::tool {

// Fills token_layers, and on the CPU step_seconds and prefill_layers. Decodes small models of
// random weights on the executor that `machine` names, with every expert in its memory. `seconds`:
// approximate time for all of them.
core::status measure_tokens(double seconds, uint32_t threads, core::measured_machine &machine);
// Fills load_seconds of a CPU: a small model with room for a third of its experts. Requires:
// step_seconds.
core::status measure_loads(double seconds, uint32_t threads, core::measured_machine &machine);

}  // namespace moorage::tool

// arithmetic_reader.h - reads [run] arithmetic.
#pragma once

#include "core/config/arithmetic.h"
#include "core/config/executors.h"
#include "core/config/section.h"

namespace moorage::core {

// Fails on other words, and on arithmetic that the executor does not have. If the key is absent,
// `mode` stays.
void read_arithmetic(section_reader &run, const executor_kind &runs_on, arithmetic &mode);

}  // namespace moorage::core

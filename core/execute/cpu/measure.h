// measure.h - measures the processor and its memory as the device of the CPU executor.
#pragma once

#include <string>

#include "core/base/result.h"
#include "core/execute/measure.h"

namespace moorage::core {

// "AMD EPYC 9334 32-Core Processor", as the system names it.
std::string processor_name();

// Everything of measured_machine but the date. An error if there is no memory for it (four experts
// and a buffer of 512 MiB).
result<measured_machine> measure_cpu(const measure_options &options);

}  // namespace moorage::core

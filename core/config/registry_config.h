// registry_config.h - reads section [registry] of a run's file.
#pragma once

#include "core/config/run_config.h"
#include "core/config/section.h"

namespace moorage::core {

// What is wrong stands in `from`.
void read_registry(section_reader &from, registry_config &out);

}  // namespace moorage::core

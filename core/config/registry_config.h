// registry_config.h - reads section [registry] of a run's file.
#pragma once

#include "core/config/run_config.h"
#include "core/config/section.h"

namespace moorage::core {

// Errors are reported through `section`.
void read_registry(section_reader &section, registry_config &registry);

}  // namespace moorage::core

// registry_config.h - reads section [registry] of a run's file.
#pragma once

#include <filesystem>

#include "core/config/run_config.h"
#include "core/config/section.h"

namespace moorage::core {

// What is wrong stands in `from`. A path of the file is relative to `base`.
void read_registry(section_reader &from, const std::filesystem::path &base, registry_config &out);

}  // namespace moorage::core

// sweeps.h - reads --sweep for several commands.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"

namespace moorage::tool {

// Reads texts of the form `section.key=value,value`. The first wrong one is the error.
core::result<std::vector<core::sweep>> read_sweeps(const std::vector<std::string> &texts);

}  // namespace moorage::tool

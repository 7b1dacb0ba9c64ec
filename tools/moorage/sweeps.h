// sweeps.h - what --sweep of several commands says.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"

namespace moorage::tool {

// Each text as `section.key=value,value`; the first that is none is the error.
core::result<std::vector<core::sweep>> read_sweeps(const std::vector<std::string> &texts);

}  // namespace moorage::tool

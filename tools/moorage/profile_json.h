// profile_json.h - all measurements of a machine, as figures for --json.
#pragma once

#include "core/base/json_fwd.h"
#include "core/execute/measure.h"

namespace moorage::tool {

core::json json_of(const core::measured_machine &machine, const core::hardware_profile &profile);

}  // namespace moorage::tool

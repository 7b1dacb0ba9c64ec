// stage_policy.h - the policy that a stage of a configuration names.
#pragma once

#include <string_view>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/host/registry.h"

namespace moorage::core {

// Also checks the policy names of the stage's other tables. Errors begin with the place.
result<const policy *> find_policy(const registry &known, const stage_config &stage,
                                   std::string_view kind);

}  // namespace moorage::core

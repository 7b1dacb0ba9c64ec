// setting_text.h - settings of policies on the command line.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/setting.h"

namespace moorage::tool {

// Reads "half_life=16" as --set does. `place`: its place, for errors.
core::result<core::setting> parse_setting(std::string_view text, std::string place);

}  // namespace moorage::tool

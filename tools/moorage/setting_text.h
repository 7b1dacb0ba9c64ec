// setting_text.h - settings of policies as they stand on the command line.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/setting.h"

namespace moorage::tool {

// "half_life=16", read as --set reads it. `place` is where it stands, for errors.
core::result<core::setting> parse_setting(std::string_view text, std::string place);

}  // namespace moorage::tool

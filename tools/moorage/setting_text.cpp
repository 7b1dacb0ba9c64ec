// setting_text.cpp - key=value; the form of the value gives its type.
#include "tools/moorage/setting_text.h"

#include "core/base/text.h"
#include "core/config/section.h"

namespace moorage::tool {

using core::error, core::format, core::result;

result<core::setting> parse_setting(std::string_view text, std::string place) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string_view::npos)
        return error{format("{}: {} is not of the form key=value", place, text), true};
    const core::config_value assignment{std::string(text.substr(0, equals)),
                                        core::parse_value(text.substr(equals + 1)), place,
                                        std::string(text.substr(equals + 1))};
    const auto value = core::setting_of(assignment);
    if (!value)
        return error{format("{}: {} is {}; a boolean, a finite number or a text is needed", place,
                            assignment.key, describe(assignment.value)),
                     true};
    return core::setting{assignment.key, *value, std::move(place)};
}

}  // namespace moorage::tool

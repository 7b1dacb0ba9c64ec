// setting_text.cpp - key=value, where the value says of what type it is.
#include "tools/moorage/setting_text.h"

#include <charconv>

#include "core/base/text.h"

namespace moorage::tool {

using core::error, core::format, core::result;

namespace {

core::setting_value parse_value(std::string_view text) {
    if (text == "true") return true;
    if (text == "false") return false;
    const char *end = text.data() + text.size();
    int64_t whole = 0;
    if (const auto read = std::from_chars(text.data(), end, whole);
        read.ec == std::errc() && read.ptr == end)
        return whole;
    double real = 0;
    if (const auto read = std::from_chars(text.data(), end, real);
        read.ec == std::errc() && read.ptr == end)
        return real;
    return std::string(text);
}

}  // namespace

result<core::setting> parse_setting(std::string_view text, std::string place) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string_view::npos)
        return error{format("{}: {} is not of the form key=value", place, text), true};
    return core::setting{std::string(text.substr(0, equals)), parse_value(text.substr(equals + 1)),
                         std::move(place)};
}

}  // namespace moorage::tool

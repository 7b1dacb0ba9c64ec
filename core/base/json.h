// json.h - the JSON library. Only units that build, read or write JSON include this header. Other
// headers need only the name: json_fwd.h.
#pragma once

#include <nlohmann/json.hpp>

#include <variant>

#include "core/base/json_fwd.h"
#include "core/base/setting.h"

namespace moorage::core {

// read_json() for objects that keep their keys in another order.
template <class Json>
result<Json> read_json_as(std::string_view text) {
    // Few files have Infinity or NaN, so the text is searched for them only if it does not parse.
    Json root = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    if (!root.is_discarded()) return root;
    try {
        return Json::parse(quote_non_finite_numbers(text));
    } catch (const typename Json::exception &about) {
        return error{json_problem(about.what())};
    }
}

inline json json_of(const setting_value &value) {
    return std::visit([](const auto &held) { return json(held); }, value);
}

}  // namespace moorage::core

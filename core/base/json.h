// json.h - the JSON library, included here and nowhere else. Keys keep their order.
#pragma once

#include <nlohmann/json.hpp>

#include <variant>

#include "core/base/setting.h"

namespace moorage::core {

using json = nlohmann::ordered_json;

inline json json_of(const setting_value &value) {
    return std::visit([](const auto &held) { return json(held); }, value);
}

}  // namespace moorage::core

// json.h - the JSON library, included here and nowhere else: by the units that build, read or write
// JSON. Headers need its name alone: json_fwd.h.
#pragma once

#include <nlohmann/json.hpp>

#include <variant>

#include "core/base/json_fwd.h"
#include "core/base/setting.h"

namespace moorage::core {

inline json json_of(const setting_value &value) {
    return std::visit([](const auto &held) { return json(held); }, value);
}

}  // namespace moorage::core

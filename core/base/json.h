// json.h - the JSON library, included here and nowhere else. Keys keep their order.
#pragma once

#include <nlohmann/json.hpp>

namespace moorage::core {

using json = nlohmann::ordered_json;

}  // namespace moorage::core

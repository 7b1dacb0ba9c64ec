// setting.h - a key and its value as the user gave them, and where they came from.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace moorage::core {

using setting_value = std::variant<bool, int64_t, double, std::string>;

struct setting {
    std::string key;  // without its section: "half_life"
    setting_value value;
    std::string place;  // for messages: "run.toml:12" or "--set cache.half_life"
};
using settings = std::vector<setting>;

}  // namespace moorage::core

// parameters.h - checks a user's settings against a policy's declaration, and makes its typed
// values.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/setting.h"
#include "moorage/module.h"

namespace moorage::core {

// Parameters in declaration order: key and value. Those that were not set have their default.
using parameter_values = std::vector<std::pair<std::string, setting_value>>;

// An integer is accepted for a real; nothing else is converted. If a key is set twice, the later
// value wins. `owner` begins every message: "cache plugin lfu".
result<parameter_values> check_parameters(const std::string &owner,
                                          std::span<const moorage_param> declared,
                                          const settings &settings);

// The values in the types of the interface. Texts are borrowed from `values`.
std::vector<moorage_value> typed_values(std::span<const moorage_param> declared,
                                        const parameter_values &values);

// "integer", "real", "flag", "text".
const char *type_name(int32_t type);
setting_value default_of(const moorage_param &declared);

}  // namespace moorage::core

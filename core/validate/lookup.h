// lookup.h - the parts of a setting, by the names that a measurement gives them.
#pragma once

#include <string>
#include <vector>

#include "core/validate/setting.h"

namespace moorage::core {

uint32_t count_of(double value, uint32_t absent);  // of a cell

// The file of the version, or of one that it begins with, or of the engine.
result<engine_profile> find_engine(const measurement &figure, const setting_sources &sources);
// A shape by its name, or by the longest beginning of it that is one: formats are suffixes.
result<model_shape> find_geometry(const std::string &name, const setting_sources &sources);
// That what the row says can be of such a model: the error names column, value and limits.
status check_values(const measurement &figure, const model_shape &shape);
// What the row itself says of its weights goes before the file.
status take_formats(const measurement &figure, model_shape &shape,
                    std::vector<std::string> &assumed);
status take_link(const measurement &figure, const setting_sources &sources, hardware_profile &to);
status take_node(const measurement &figure, const setting_sources &sources, hardware_profile &to,
                 std::vector<std::string> &assumed);

}  // namespace moorage::core

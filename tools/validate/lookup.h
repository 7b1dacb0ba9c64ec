// lookup.h - finds the parts of a setting by the names in a measurement.
#pragma once

#include <string>
#include <vector>

#include "tools/validate/setting.h"

namespace moorage::core {

uint32_t count_or(double value, uint32_t absent);  // the value of a cell

// The engine's file for the stated version, or for the longest beginning of it that has one, or for
// the engine without a version.
result<engine_profile> find_engine(const measurement &figure, const setting_sources &sources);
// A shape by its name, or by the longest beginning of the name that is a shape's name. The rest is
// a format suffix.
result<model_shape> find_geometry(const std::string &name, const setting_sources &sources);
// Checks that the row's values are possible for such a model. The error names column, value and
// limits.
status check_values(const measurement &figure, const model_shape &shape);
// Weight formats that the row states replace those of the shape's file.
status apply_formats(const measurement &figure, model_shape &shape,
                     std::vector<std::string> &assumed);
status apply_link(const measurement &figure, const setting_sources &sources,
                  hardware_profile &hardware);
status apply_node(const measurement &figure, const setting_sources &sources,
                  hardware_profile &hardware, std::vector<std::string> &assumed);

}  // namespace moorage::core

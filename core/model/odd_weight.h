// odd_weight.h - finds a model's weight that is not a finite number.
#pragma once

#include <string>

#include "core/model/model.h"

namespace moorage::core {

// The first such weight in use, "FILE: tensor T holds nan at [3, 5]"; empty: none. Reads all
// weights, so call it only after results that were not finite.
std::string find_non_finite_weight(const model &model);

}  // namespace moorage::core

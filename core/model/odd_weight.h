// odd_weight.h - which weight of a model is no finite number.
#pragma once

#include <string>

#include "core/model/model.h"

namespace moorage::core {

// The first among those in use, "FILE: tensor T holds nan at [3, 5]"; empty: there is none. Reads
// them all: for when results were not finite.
std::string odd_weight(const model &of);

}  // namespace moorage::core

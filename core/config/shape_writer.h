// shape_writer.h - a model shape as the text of a file of configs/models.
#pragma once

#include <string>

#include "core/config/hardware.h"

namespace moorage::core {

// What load_shape reads back. `geometry` and `sizes` say where the figures come from, mark first; a
// figure of 0 that a file may leave out is left out.
std::string to_toml(const model_shape &shape, const std::string &geometry,
                    const std::string &sizes);

}  // namespace moorage::core

// shape_writer.h - a model shape as the text of a file of configs/models.
#pragma once

#include <string>

#include "core/config/hardware.h"

namespace moorage::core {

// Writes text that load_shape reads. `geometry` and `sizes` say where the figures come from, mark
// first. A figure of 0 is omitted where the file may omit it.
std::string to_toml(const model_shape &shape, const std::string &geometry,
                    const std::string &sizes);

}  // namespace moorage::core

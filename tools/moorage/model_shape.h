// model_shape.h - moorage model shape: a model directory's geometry and sizes as a shape file.
#pragma once

#include "tools/moorage/command.h"

namespace moorage::tool {

// Adds `shape` to the `model` command, as command.h says of commands.
command install_model_shape(parser &model);

}  // namespace moorage::tool

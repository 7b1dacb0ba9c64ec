// model_info.h - moorage model info: a model directory's kind and sizes, and how much fits on which
// device.
#pragma once

#include "tools/moorage/command.h"

namespace moorage::tool {

// Adds `info` to the `model` command, as command.h says of commands.
command install_model_info(parser &model);

}  // namespace moorage::tool

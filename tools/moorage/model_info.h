// model_info.h - moorage model info: what a model directory is, how large, and what fits where.
#pragma once

#include "tools/moorage/command.h"

namespace moorage::tool {

// Adds `info` to the `model` command, as command.h says of commands.
command install_model_info(parser &model);

}  // namespace moorage::tool

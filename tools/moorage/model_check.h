// model_check.h - moorage model check: a model directory against its golden.safetensors.
#pragma once

#include "tools/moorage/command.h"

namespace moorage::tool {

// Adds `check` to the `model` command, as command.h says of commands.
command install_model_check(parser &model);

}  // namespace moorage::tool

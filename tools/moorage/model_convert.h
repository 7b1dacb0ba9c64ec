// model_convert.h - moorage model convert: a model in another kind of file or format.
#pragma once

#include "tools/moorage/command.h"

namespace moorage::tool {

// Adds `convert` to the `model` command, as command.h says of commands.
command install_model_convert(parser &model);

}  // namespace moorage::tool

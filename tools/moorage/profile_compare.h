// profile_compare.h - moorage profile compare: runs on the emulator and for real, side by side.
#pragma once

#include "tools/moorage/command.h"
#include "tools/moorage/parser.h"

namespace moorage::tool {

// Adds the subcommand to `profile`.
command install_profile_compare(parser &profile);

}  // namespace moorage::tool

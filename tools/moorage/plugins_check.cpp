// plugins_check.cpp - `plugins check`.
#include "tools/moorage/plugins.h"
#include "tools/moorage/command.h"

namespace moorage::tool {
int plugins_check(const plugins_check_options &) { return exit_failed; }
}  // namespace moorage::tool

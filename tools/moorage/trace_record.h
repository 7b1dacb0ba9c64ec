// trace_record.h - moorage trace record: the routing of a model run as a trace.
#pragma once

#include "tools/moorage/command.h"

namespace moorage::tool {

command install_record(parser &app);

}  // namespace moorage::tool

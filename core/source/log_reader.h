// log_reader.h - the two text formats of routing logs, read line by line.
#pragma once

#include "core/base/line_reader.h"
#include "core/base/result.h"
#include "core/source/log_builder.h"

namespace moorage::core {

status read_csv(line_reader &lines, log_builder &builder);
status read_json_lines(line_reader &lines, log_builder &builder);

}  // namespace moorage::core

// html.h - a comparison as one HTML file that needs nothing else: no script, no font, no network.
#pragma once

#include <string>

#include "core/report/comparison.h"

namespace moorage::core {

// What was run, what it says, the plots and the tables. `command`: the command line that makes the
// page again, shown as it is; may be empty. Well-formed XML apart from the doctype line.
std::string to_html(const comparison &compared, const std::string &command);

}  // namespace moorage::core

// invariants.h - what every report must agree with, whatever was run.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/report/report.h"

namespace moorage::random {

// A sentence for each that does not hold.
std::vector<std::string> broken_invariants(const core::run_report &report,
                                           const core::run_config &config);

}  // namespace moorage::random

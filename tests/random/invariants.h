// invariants.h - the rules of every report, for any run.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/report/report.h"

namespace moorage::random {

// A sentence for each broken invariant.
std::vector<std::string> broken_invariants(const core::run_report &report,
                                           const core::run_config &config);

}  // namespace moorage::random

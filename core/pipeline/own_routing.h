// own_routing.h - what a lossy router costs in quality: the same tokens scored once more with the
// model's own routing.
#pragma once

#include <vector>

#include "core/pipeline/run.h"

namespace moorage::core {

// Fills in report.text.own_nll: of the configuration's text, counted once for all runs of it, or of
// what the lossy run wrote (`written`). Nothing for a trace, nor for what was not scored at all (a
// text written on a real executor). A second run that fails is a warning of the report. Requires:
// the report is that of a lossy router.
void add_own_routing(const run_config &config, run_resources &shared, const run_options &options,
                     const std::vector<model_request> &written, run_report &report);

}  // namespace moorage::core

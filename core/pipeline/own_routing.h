// own_routing.h - what a lossy router costs in quality: the same tokens scored once more with the
// model's own routing.
#pragma once

#include <string>
#include <vector>

#include "core/pipeline/run.h"

namespace moorage::core {

// Fills in report.text.own_nll: of the configuration's text, counted once for all runs of it, or of
// what the lossy run wrote (`written`). Nothing for a trace, nor for what was not scored at all (a
// text written on a real executor). A second run that fails is a warning of the report. Requires:
// the report is that of a lossy router.
// The text's own likelihood is left to options.later where that is given.
void add_own_routing(const run_config &config, run_resources &shared, const run_options &options,
                     const std::vector<model_request> &written, run_report &report);

// The two halves of it for a text that was given. Runs with equal keys have the same own routing.
std::string own_routing_key(const run_config &config);
result<text_report> own_routing_of(const run_config &config, run_resources &shared,
                                   const run_options &options);
void take_own_routing(const result<text_report> &own, run_report &report);

}  // namespace moorage::core

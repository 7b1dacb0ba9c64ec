// own_routing.h - the cost of a lossy router in quality. The same tokens are scored once more with
// the model's own routing.
#pragma once

#include <string>
#include <vector>

#include "core/pipeline/run.h"

namespace moorage::core {

// Fills in report.text.own_nll: for the configuration's text, counted once for all runs of it, or
// for the text that the lossy run wrote (`written`). Does nothing for a trace, or for a text that
// was not scored (written on a real executor). A second run that fails is a warning of the report.
// Requires: the report is that of a lossy router. If options.deferred is set, the text's
// own likelihood is left to it.
void add_own_routing(const run_config &config, run_resources &shared, const run_options &options,
                     const std::vector<model_request> &written, run_report &report);

// The two halves of it for a given text. Runs with equal keys have the same own routing.
std::string own_routing_key(const run_config &config);
result<text_report> own_routing_of(const run_config &config, run_resources &shared,
                                   const run_options &options);
void take_own_routing(const result<text_report> &own_text, run_report &report);

}  // namespace moorage::core

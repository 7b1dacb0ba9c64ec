// substitution.h - the changes by a lossy router and their cost, for every form of the report.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/report/report.h"

namespace moorage::core {

// "0.04 %": as percent(), for small shares that matter. "-": there is nothing to divide by.
std::string fine_percent(double part, double whole);

// Share of the model's own choices. 0 if there were none.
double substituted_share(const routing_counts &routing, uint64_t substituted);

// {"choices", "substituted", "substituted_share", "reweighted", "dropped", "agreement", "rows",
//  "rows_unchanged", "rows_agreement", "held_exact", "held_cap"}: agreement is the share of the
//  model's own choices
// that stood, rows_agreement that of the rows (a token at a layer) left as they were.
json to_json(const routing_counts &routing, uint64_t substituted);

// Label and text of the lines of a run's report. None if the router is lossless.
std::vector<std::pair<std::string, std::string>> routing_lines(const run_report &report);

// "82.00 % of the work in big.gguf (1.2 GB loaded), 18.00 % in small.gguf (0.1 GB loaded)".
// Requires: experts have two versions.
std::string versions_text(const run_report &report);

// "+1.14 %": perplexity against that of the model's own routing. "-": not known.
std::string perplexity_change(const text_report &text);
std::string perplexity_change(double nll_change);

}  // namespace moorage::core

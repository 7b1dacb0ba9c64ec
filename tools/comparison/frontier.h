// frontier.h - how a figure depends on a parameter, and which values are Pareto-optimal.
//
//   tuning drawn{.params = {memory, policy}, .targets = {{.metric = "tpot_ms"}}};
//   if (trace_frontier(drawn, run, {})) ...pareto_set(drawn)
//
// The first parameter is a number. All others are words, and each combination of them is a curve.
// Runs go where a curve is least known: into the gap with the largest step of the figure and of the
// parameter, as shares of the range seen of each.
#pragma once

#include <string>
#include <vector>

#include "tools/comparison/tuning.h"

namespace moorage::core {

// Fills in trials and the trend. A parameter without a preference is a cost, so the smallest value
// is preferred. Errors are those of `run`.
status trace_frontier(tuning &tuning, const run_points &run, const search_limits &limits);

// The Pareto-optimal trials among those that count: no other trial is better in the parameter or in
// the figure without being worse in the other. By the parameter, the cheapest first.
std::vector<size_t> pareto_set(const tuning &tuning);

std::string frontier_text(const tuning &tuning);  // for a terminal, at most 80 columns
// {"params", "targets", "samples", "failed" as of a search, "frontier": samples}
json frontier_json(const tuning &tuning);
std::string frontier_html(const tuning &tuning);  // a page of its own

}  // namespace moorage::core

// what_if.h - what a run would gain from more of each resource: runs the same configuration once
// for each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/report/report.h"

namespace moorage::core {

struct what_if {
    struct row {
        std::string resource;      // one of resource_names, or "expert_memory" or "host_memory"
        std::string words;         // "the link"
        std::optional<double> ms;  // none: its run failed
        std::string reason;        // why it failed, or what the machine lacks for it
    };
    double factor = 1.1;  // factor for each, one at a time
    std::string metric;   // "tpot_ms", or "ttft_ms" for a run without decoding
    double base_ms = 0;
    std::vector<row> rows;

    // The share of the metric that the row saves. Below 0: more of the resource makes it slower.
    // Requires: its run ended.
    double saved(const row &row) const { return 1 - *row.ms / base_ms; }
};

// The metric to compare: TPOT if a token was decoded.
what_if what_if_of(const run_report &base);
double figure_of(const what_if &savings, const run_report &report);

// "the link decides: 10 % more of it saves 6.6 %; next is ...".
std::string what_if_sentence(const what_if &savings);
// A table, the largest saving first, and the sentence that follows from it. At most 80 columns.
std::string to_text(const what_if &savings);
// A table for several runs: what each resource saves each of them, one row a run. `labels` are
// theirs.
std::string what_if_table(const std::vector<std::string> &labels,
                          const std::vector<const what_if *> &savings, size_t columns_max);
// {"factor", "metric", "base", "rows": [{"resource", "words", "value", "saved", "error"}]}
json to_json(const what_if &savings);

}  // namespace moorage::core

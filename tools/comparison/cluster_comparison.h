// cluster_comparison.h - runs over clusters side by side: their table and findings.
//
// comparison_text calls these for rows that have a cluster report. Runs on one machine may be
// compared with them. Those are in the same table, with "-" for figures that they do not have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/comparison/comparison.h"
#include "tools/comparison/text_table.h"

namespace moorage::core {

bool any_cluster(const comparison &compared);
bool all_clusters(const comparison &compared);

// Each size of expert memory once, in order of appearance. 0 stands for runs on one machine.
std::vector<uint64_t> memory_sizes(const comparison_view &view);

// A column "± 0.12" of the time, for rows that ran several times. Nothing if none did.
std::optional<table_column> interval_column(const comparison &compared);
// The table of at most 80 columns, with what its headings mean.
std::string cluster_table(const comparison &compared, const comparison_view &view);
// The fastest run, its lead, and whether keeping calls local is the reason.
std::vector<std::string> cluster_reading(const comparison &compared, const comparison_view &view);

}  // namespace moorage::core

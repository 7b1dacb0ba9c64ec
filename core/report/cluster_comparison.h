// cluster_comparison.h - runs over clusters side by side: their table and findings.
//
// comparison_text calls these for the rows that have a cluster report. Where runs on one
// machine are compared with them, those stand in the same table with "-" for what they have not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/report/comparison.h"
#include "core/report/text_table.h"

namespace moorage::core {

bool any_cluster(const comparison &compared);
bool all_clusters(const comparison &compared);

// Each size of expert memory once, as they come; 0 stands for runs on one machine.
std::vector<uint64_t> memory_sizes(const comparison_view &view);

// "± 0.12" of the time, of the rows that ran several times; nothing where none did.
std::optional<table_column> interval_column(const comparison &compared);
// The table of at most 80 columns, with what its headings mean.
std::string cluster_table(const comparison &compared, const comparison_view &view);
// Which is fastest and by how much, and whether keeping calls local is what made it so.
std::vector<std::string> cluster_reading(const comparison &compared, const comparison_view &view);

}  // namespace moorage::core

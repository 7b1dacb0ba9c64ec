// cluster_comparison.h - runs over clusters side by side: their table, findings and chapters.
//
// comparison_text and html call these for the rows that have a cluster report. Where runs on one
// machine are compared with them, those stand in the same table with "-" for what they have not.
#pragma once

#include <string>
#include <vector>

#include "core/report/comparison.h"

namespace moorage::core {

bool any_cluster(const comparison &compared);
bool all_clusters(const comparison &compared);

// Each size of expert memory once, as they come; 0 stands for runs on one machine.
std::vector<uint64_t> memory_sizes(const comparison_view &view);

// What the rows' sizes or one other setting were swept over, in numbers.
struct swept_axis {
    std::string title;                // "expert memory, GB a device"; empty: nothing was swept
    std::vector<double> values;       // by row; NaN for rows on one machine
    std::vector<std::string> labels;  // by row, without the swept setting: the name of a line
};
swept_axis swept_axis_of(const comparison &compared, const comparison_view &view);

// The table of at most 80 columns, with what its headings mean.
std::string cluster_table(const comparison &compared, const comparison_view &view);
// Which is fastest and by how much, and whether keeping calls local is what made it so.
std::vector<std::string> cluster_reading(const comparison &compared, const comparison_view &view);

// "3 servers with 4 devices, 3 homes", of each cluster once; "" where there is none.
std::string cluster_fact(const comparison &compared);
// Chapters of the page: latency, over time, homes and links, placement, results.
std::string cluster_chapters(const comparison &compared, const comparison_view &view);
// What the words on these chapters mean, for a <dl>.
std::string cluster_words();

}  // namespace moorage::core

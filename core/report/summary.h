// summary.h - mean and percentiles of measured times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

struct summary_ms {
    double mean = 0, p50 = 0, p99 = 0;
};
json to_json(const summary_ms &summary);

// Collects any number of times in bounded memory. The first exact_max are kept as they are. With
// more, all are kept as counts of ranges, each 1/2048 of its octave wide.
class time_collection {
public:
    static constexpr size_t exact_max = size_t{1} << 17;

    void add(uint64_t ns);
    uint64_t count() const { return count_; }
    // The mean, always exact, and the nearest-rank percentiles (smallest value with at least p % of
    // the values at or below it). Percentiles are exact up to exact_max values. Beyond that they
    // are the middle of a range, off by no more than 1/4096. Zeros if nothing was added.
    summary_ms summary();

private:
    void sort_in(uint64_t ns);
    uint64_t at_rank(uint64_t rank) const;  // ranks count from 1

    std::vector<uint64_t> values_;  // used until there are counts
    std::vector<uint64_t> counts_;  // by range
    uint64_t count_ = 0, sum_ns_ = 0;
};

}  // namespace moorage::core

// summary.h - mean and percentiles of measured times.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

struct summary_ms {
    double mean = 0, p50 = 0, p99 = 0;
};
// Mean, and the nearest-rank percentiles (smallest value with at least p % of the values at or
// below it). Empty input gives zeros. Reorders `values_ns`.
summary_ms summarise(std::vector<uint64_t> &values_ns);
json to_json(const summary_ms &summary);

}  // namespace moorage::core

// summary.cpp - sums as integers, percentiles by rank.
#include "core/report/summary.h"

#include <algorithm>
#include <cassert>

#include "core/base/json.h"
#include "core/report/figures.h"

namespace moorage::core {

summary_ms summarise(std::vector<uint64_t> &values_ns) {
    if (values_ns.empty()) return {};
    std::sort(values_ns.begin(), values_ns.end());
    // Summed as integers: exact, so the order of the values cannot show in the mean. The sum holds
    // for 584 years of virtual time.
    uint64_t sum_ns = 0;
    for (const uint64_t value : values_ns) sum_ns += value;
    const size_t count = values_ns.size();
    const auto rank = [&](size_t of_hundred) {
        const size_t nearest = (count * of_hundred + 99) / 100;  // rounded up, from 1
        assert(nearest >= 1 && nearest <= count);
        return double(values_ns[nearest - 1]) / 1e6;
    };
    return {double(sum_ns) / double(count) / 1e6, rank(50), rank(99)};
}

json to_json(const summary_ms &summary) {
    return {
        {"mean", stable(summary.mean)}, {"p50", stable(summary.p50)}, {"p99", stable(summary.p99)}};
}

}  // namespace moorage::core

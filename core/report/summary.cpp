// summary.cpp - sums as integers, percentiles by rank.
#include "core/report/summary.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "core/base/json.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

// Ranges: each value below 2^steps_bits its own, then 2^steps_bits to an octave.
constexpr int steps_bits = 11;
constexpr uint64_t steps = uint64_t{1} << steps_bits;

size_t range_of(uint64_t ns) {
    const int octave = std::max(static_cast<int>(std::bit_width(ns)) - 1 - steps_bits, 0);
    return static_cast<size_t>((uint64_t(octave) << steps_bits) + (ns >> octave));
}

// The middle of the range, rounded down.
uint64_t middle_of(size_t range) {
    if (range < 2 * steps) return range;
    const uint64_t octave = range / steps - 1, first = (range % steps + steps) << octave;
    return first + (uint64_t{1} << octave) / 2;
}

}  // namespace

void time_collection::sort_in(uint64_t ns) {
    const size_t range = range_of(ns);
    if (range >= counts_.size()) counts_.resize(range + 1, 0);
    ++counts_[range];
}

void time_collection::add(uint64_t ns) {
    ++count_;
    // As integers: exact, so the order of the values cannot show in the mean. The sum holds for 584
    // years of virtual time.
    sum_ns_ += ns;
    if (counts_.empty()) {
        if (values_.size() < exact_max) return values_.push_back(ns);
        for (const uint64_t value : values_) sort_in(value);
        values_ = {};
    }
    sort_in(ns);
}

uint64_t time_collection::at_rank(uint64_t rank) const {
    assert(rank >= 1 && rank <= count_);
    if (counts_.empty()) return values_[rank - 1];
    uint64_t below = 0;
    size_t range = 0;
    while (below + counts_[range] < rank) below += counts_[range++];
    return middle_of(range);
}

summary_ms time_collection::summary() {
    if (count_ == 0) return {};
    std::sort(values_.begin(), values_.end());
    const auto percentile = [&](uint64_t of_hundred) {
        const uint64_t nearest = (count_ * of_hundred + 99) / 100;  // rounded up, from 1
        return double(at_rank(nearest)) / 1e6;
    };
    return {double(sum_ns_) / double(count_) / 1e6, percentile(50), percentile(99)};
}

json to_json(const summary_ms &summary) {
    return {
        {"mean", stable(summary.mean)}, {"p50", stable(summary.p50)}, {"p99", stable(summary.p99)}};
}

}  // namespace moorage::core

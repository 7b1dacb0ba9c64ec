// trace_stats.h - properties of a trace's routing: skew, reuse and predictability.
#pragma once

#include <cstdint>
#include <vector>

#include "core/source/trace.h"

namespace moorage::core {

struct trace_statistics {
    uint64_t length_min = 0, length_max = 0;  // tokens of a request
    double length_median = 0;
    std::vector<uint32_t> distinct;  // [layers] experts that are chosen at least once
    // [layers] share of all choices that go to the most popular quarter of the experts (rounded
    // up).
    std::vector<double> top_share;
    uint32_t top_count = 0;  // number of experts in that quarter
    // [layers] probability that an expert of the previous token of the same request is chosen
    // again. NaN: no request has two tokens.
    std::vector<double> reuse;
    // [layers] share of the chosen experts that are among the first top_k predicted. Empty: no
    // predictions.
    std::vector<double> accuracy;
};

// One pass over experts and predictions.
trace_statistics measure(const trace &trace);

// Mean of the values from index `first` on; NaN: there are none.
double mean_from(const std::vector<double> &values, size_t first);

}  // namespace moorage::core

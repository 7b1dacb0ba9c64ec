// golden_report.h - how far an executor's results are from a model's reference results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace moorage::core {

// Largest relative error of logits. It leaves room for other orders of float32 sums, and for the
// GPU's lower precisions.
inline constexpr double golden_error_max = 2e-3;

struct golden_report {
    double logits_error = 0;           // relative_error() of the prompt's logits
    std::vector<double> hidden_error;  // [layers + 1] of the hidden states; empty: not kept
    std::vector<int32_t> greedy;       // the continuation computed
    uint32_t greedy_equal = 0;         // number of its first ids that equal the reference
    bool greedy_match = false;
    bool pass() const { return greedy_match && logits_error <= golden_error_max; }
    // The index of the largest hidden_error. Requires: they were kept.
    uint32_t worst_layer() const {
        return static_cast<uint32_t>(std::ranges::max_element(hidden_error) - hidden_error.begin());
    }
};

// Results of exact arithmetic and, if the executor has it, of [run] arithmetic = "fast".
struct golden_results {
    golden_report exact;
    std::optional<golden_report> fast;
};

}  // namespace moorage::core

// golden_check.h - compares what this machine computes with a model's reference results.
#pragma once

#include "core/execute/cpu/cpu_model.h"
#include "core/execute/cpu/thread_pool.h"
#include "core/execute/executor_drive.h"
#include "core/model/golden.h"
#include "core/model/model.h"

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
    uint32_t worst_layer() const;
};

// Runs the whole input as one prompt. Then runs the first ids as a prompt continued token by token.
result<golden_report> check_golden(const model &model, const golden_data &golden,
                                   thread_pool &pool);
// The same on any executor that `drive` uses. Its results are `computed`, without hidden states.
// Its limits are golden_limits().
result<golden_report> check_golden(const golden_data &golden, executor_drive &drive,
                                   const pass_results &computed, const rope_config &rope);
cpu_model_limits golden_limits(const golden_data &golden);

}  // namespace moorage::core

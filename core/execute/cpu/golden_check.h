// golden_check.h - compares what this machine computes with a model's reference results.
#pragma once

#include "core/execute/cpu/cpu_model.h"
#include "core/execute/thread_pool.h"
#include "core/execute/executor_drive.h"
#include "core/execute/golden_report.h"
#include "core/model/golden.h"
#include "core/model/model.h"

namespace moorage::core {

// Runs the whole input as one prompt. Then runs the first ids as a prompt continued token by token.
result<golden_report> check_golden(const model &model, const golden_data &golden,
                                   thread_pool &pool);
// The same on any executor that `drive` uses. Its results are `computed`, without hidden states.
// Its limits are golden_limits().
result<golden_report> check_golden(const golden_data &golden, executor_drive &drive,
                                   const pass_results &computed, const rope_config &rope);
compute_limits golden_limits(const golden_data &golden);

}  // namespace moorage::core

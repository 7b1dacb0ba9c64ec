// cuda_golden_check.h - compares what the GPU computes with a model's reference results.
#pragma once

#include "core/base/result.h"
#include "core/execute/cpu/golden_check.h"

namespace moorage::core {

// As check_golden() on the CPU, without hidden states. Uses the full precision of the kernels. As
// many experts as fit are on the GPU; the others are loaded on demand. threads: of host work; 0:
// one a core but one.
result<golden_report> check_golden_on_gpu(const model &model, const golden_data &golden,
                                          uint32_t threads);

}  // namespace moorage::core

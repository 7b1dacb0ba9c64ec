// expert_batch.h - computes experts for the rows of several callers at once. Every row gets the
// same bits as in a call by its caller alone.
//
// Rows that want the same expert are computed together, so its weights are read once. Kernels sum
// in one order for few rows and in another for many (kernels.h). Therefore only callers on the same
// side of that border are joined, and only as far as they stay on that side together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/execute/cpu/kernels.h"
#include "core/execute/node_compute.h"
#include "core/model/model_config.h"

namespace moorage::core {

class expert_batch final : public joined_experts {
public:
    // Borrowed. One caller of the pool at a time.
    expert_batch(const model_config &config, thread_pool &pool) : config_(config), mlp_(pool) {}
    void compute(std::span<const batch_item> items) override;

private:
    void join(std::span<const batch_item *const> group);
    void scatter();

    struct joined_item {
        const batch_item *item;
        size_t row;  // first of its rows in the joint memory
    };
    const model_config &config_;
    mlp_kernel mlp_;
    std::vector<const batch_item *> order_;
    std::vector<mlp_call> calls_;
    std::vector<joined_item> joined_;
    std::vector<float> input_, outputs_;  // [joint rows, hidden]
    size_t joint_rows_ = 0;
};

}  // namespace moorage::core

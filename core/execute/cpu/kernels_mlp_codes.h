// kernels_mlp_codes.h - experts whose matrices meet activations in codes: the loops of
// kernels_mlp.cpp again. The values between up and down are rounded where they are made.
#pragma once

#include "core/execute/float_buffer.h"
#include "core/execute/cpu/kernels_code_panels.h"

namespace moorage::core {

class mlp_codes {
public:
    // At most work_list::JOBS_MAX calls; `memory` grows to what they need.
    void run(thread_pool &pool, float_buffer &memory, std::span<const mlp_call> calls);

private:
    // The layout of a call. Places count floats from the beginning of the memory.
    struct call_plan {
        code_layout input, inner;  // for the rows of gate and up, and for those of down
        size_t inputs, inners;     // activation chunks or tiles
        uint32_t rows, down_rows;  // of an item
    };
    struct mlp_loops {
        work_list packs, gates, downs;
        size_t floats = 0, panel_floats = 0, sums_floats = 0;  // the last two are per thread
    };
    mlp_loops plan(thread_pool &pool, std::span<const mlp_call> calls);
    void round_inputs(const mlp_call &call, const call_plan &plan, uint32_t tile) const;
    void stream_gate_up(const mlp_call &call, const call_plan &plan, uint32_t first) const;
    void stream_down(const mlp_call &call, const call_plan &plan, uint32_t first) const;
    void block_gate_up(const mlp_call &call, const call_plan &plan, uint32_t first,
                       float *thread_memory) const;
    void block_down(const mlp_call &call, const call_plan &plan, uint32_t first,
                    float *thread_memory) const;
    activation_chunk *chunks(size_t place, const code_layout &cut, uint32_t token) const;
    coded_tokens tiles(size_t place, const code_layout &cut, uint32_t tokens) const;

    float *base_ = nullptr;
    size_t panel_floats_ = 0;
    call_plan plans_[work_list::JOBS_MAX];
};

}  // namespace moorage::core

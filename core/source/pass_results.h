// pass_results.h - what the host reads from a pass during its computation, from any executor.
//
// Spans stay valid until the next operation that fills them. B tokens in the pass, E experts.
#pragma once

#include <span>

namespace moorage::core {

class pass_results {
public:
    virtual ~pass_results() = default;
    // [B, E] of the layer whose gate completed last, including the bias.
    virtual std::span<const float> router_logits() const = 0;
    // [B, hidden] the router's input. Empty if nothing computes it, or if its device has failed.
    // Copied on demand from a device with its own memory.
    virtual std::span<const float> router_input() const { return {}; }
    // [B, E] predictions: the router of the next MoE layer (after the last: of the first one)
    // applied to this layer's MoE input, or what executor::predict() has put there. Empty unless
    // predictions were requested.
    virtual std::span<const float> next_router_logits() const = 0;
    // [outputs, vocabulary], one row for each token of the pass with `output`, in order. Valid
    // after the head has completed.
    virtual std::span<const float> logits() const = 0;
};

}  // namespace moorage::core

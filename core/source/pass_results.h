// pass_results.h - what the host reads of a pass that is being computed, whoever computes it.
//
// Spans stay valid until the next operation that fills them. B tokens in the pass, E experts.
#pragma once

#include <span>

namespace moorage::core {

class pass_results {
public:
    virtual ~pass_results() = default;
    // [B, E] of the layer whose gate completed last, bias included.
    virtual std::span<const float> router_logits() const = 0;
    // [B, hidden] what they were made from; empty where nothing computes it, or its device has
    // failed. Of a device with memory of its own it is copied when it is asked for.
    virtual std::span<const float> router_input() const { return {}; }
    // [B, E]: the router of the next MoE layer (after the last: the first) applied to the MoE input
    // of that layer, or what executor::predict() has put in its place. Empty unless predictions
    // were asked for.
    virtual std::span<const float> next_router_logits() const = 0;
    // [outputs, vocabulary], a row for each token of the pass with `output`, in order; valid after
    // the head completed.
    virtual std::span<const float> logits() const = 0;
};

}  // namespace moorage::core

// model_compute.h - a model's arithmetic, one operation of a layer step at a time.
//
//   begin(pass)
//   for each MoE layer:  run_attention(layer)           router logits are there
//                        route(chosen, weights)
//                        run_experts(layer, calls)      each distinct expert, whole or in segments
//                        predict(layer, ready_experts)  optional: a better next_router_logits()
//   run_head()                                          logits of the tokens with `output`
//
// `layer` counts the layers with experts, as everywhere in the host. The dense layers between them
// belong to the next run_attention() or to run_head(). Outputs of experts are kept apart per
// (token, rank). They are summed in the order of ranks when the next layer begins. So the result
// does not depend on the order in which experts are computed.
#pragma once

#include <cstdint>
#include <span>

#include "core/model/model.h"
#include "core/source/pass_results.h"
#include "core/source/source.h"

namespace moorage::core {

struct compute_limits {
    uint32_t tokens_max = 1;   // of a pass
    uint32_t streams = 1;      // requests at one time
    uint32_t context_max = 0;  // positions of each
    uint32_t outputs_max = 1;  // tokens with logits in a pass
    bool predict = false;      // fill next_router_logits()
    bool keep_hidden = false;  // for comparison with references: hidden states after every layer
};

// Rows [first, first + count) of an expert. `weights`: those of these rows alone; null: in place,
// as the model has them. `unit`: unit of its parts, if its weights are another version's; 0: the
// model's unit.
struct expert_call {
    uint32_t expert, first, count;
    const mlp_weights *weights;
    uint32_t unit = 0;
};

class model_compute : public pass_results {
public:
    // Requires: token ids below the vocabulary, positions below context_max, streams below
    // `streams`. The positions of a stream rise by one from 0, within a pass and over passes.
    virtual void begin(const pass &tokens) = 0;
    virtual void run_attention(uint32_t layer) = 0;
    // chosen, weights [B, k]; the same expert at most once per token.
    virtual void route(std::span<const uint32_t> chosen, std::span<const float> weights) = 0;
    // Distinct experts, in one parallel loop. Segments of an expert come in rising order.
    virtual void run_experts(uint32_t layer, std::span<const expert_call> calls) = 0;
    // Computes next_router_logits() anew, from the outputs of the shared expert and of the chosen
    // experts in `ready_experts`. The residual from these goes through the next layer's attention
    // to its router (SMoE, Section IV-C; dense layers in between included). If every chosen expert
    // is there, the result equals the router_logits() to come. No later result depends on it.
    // Requires: limits.predict, a later layer with experts; the experts in `ready_experts` have
    // been computed, whole.
    virtual void predict(uint32_t layer, std::span<const uint32_t> ready_experts) = 0;
    virtual void run_head() = 0;
};

}  // namespace moorage::core

// cpu_model.h - a model's arithmetic on the CPU, one operation of a layer step at a time.
//
//   begin(pass)
//   for each MoE layer:  run_attention(layer)           router logits are there
//                        route(chosen, weights)
//                        expert(...)                    each distinct expert, whole or in segments
//                        predict(layer, ready_experts)  optional: a better next_router_logits()
//   run_head()                                          logits of the tokens with `output`
//
// `layer` counts the layers with experts, as everywhere in the host. The dense layers between them
// belong to the next run_attention() or to run_head(). Outputs of experts are kept apart per
// (token, rank). They are summed in the order of ranks when the next layer begins. So the result
// does not depend on the order in which experts are computed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/execute/cpu/thread_pool.h"
#include "core/model/model.h"
#include "core/source/pass_results.h"
#include "core/source/source.h"

namespace moorage::core {

struct cpu_model_limits {
    uint32_t tokens_max = 1;   // of a pass
    uint32_t streams = 1;      // requests at one time
    uint32_t context_max = 0;  // positions of each
    uint32_t outputs_max = 1;  // tokens with logits in a pass
    bool predict = false;      // fill next_router_logits()
    bool keep_hidden = false;  // for comparison with references: hidden states after every layer
};

// Rows [first, first + count) of an expert. `weights`: as `part_weights` of cpu_model::expert().
// `unit`: unit of its parts, if its weights are another version's; 0: the model's unit.
struct expert_call {
    uint32_t expert, first, count;
    const mlp_weights *weights;
    uint32_t unit = 0;
};

class cpu_model final : public pass_results {
public:
    // `model` and `pool` are borrowed. An error if the caches need more memory than there is.
    static result<std::unique_ptr<cpu_model>> create(const model &model, thread_pool &pool,
                                                     const cpu_model_limits &limits);
    ~cpu_model() override;

    // Requires: token ids below the vocabulary, positions below context_max, streams below
    // `streams`. The positions of a stream rise by one from 0, within a pass and over passes.
    void begin(const pass &tokens);
    void run_attention(uint32_t layer);
    // chosen, weights [B, k]; the same expert at most once per token.
    void route(std::span<const uint32_t> chosen, std::span<const float> weights);
    // Rows [first, first + count) of `expert`. `part_weights`: the weights of those rows alone;
    // null: in place, as the model has them. Segments of an expert come in rising order.
    void expert(uint32_t layer, uint32_t expert, uint32_t first, uint32_t count,
                const mlp_weights *part_weights);
    // Several whole experts in place, in one parallel loop.
    void run_experts(uint32_t layer, std::span<const uint32_t> expert_ids);
    // The same for calls of expert(), of distinct experts.
    void run_experts(uint32_t layer, std::span<const expert_call> calls);
    // For experts that somebody else computes, after route(). Their input is [tokens, hidden]. The
    // rows of an expert are numbers of its rows in this input; there are none if nobody chose it.
    // Their outputs go to the given places, in that order, all of them before the next layer
    // begins.
    std::span<const float> expert_input() const;
    std::span<const uint32_t> rows_of(uint32_t expert) const;
    std::span<float> outputs_of(uint32_t expert);
    // Computes next_router_logits() anew, from the outputs of the shared expert and of the chosen
    // experts in `ready_experts`. The residual from these goes through the next layer's attention
    // to its router (SMoE, Section IV-C; dense layers in between included). If every chosen expert
    // is there, the result equals the router_logits() to come. No later result depends on it.
    // Requires: limits.predict, a later layer with experts; the experts in `ready_experts` have
    // been computed, whole.
    void predict(uint32_t layer, std::span<const uint32_t> ready_experts);
    void run_head();

    std::span<const float> router_logits() const override;
    std::span<const float> router_input() const override;
    std::span<const float> next_router_logits() const override;
    std::span<const float> logits() const override;
    // With keep_hidden: [layers + 1, B, hidden] after the pass: embedding, every layer, the last
    // after the final norm.
    std::span<const float> hidden_states() const;
    // Bytes of the key and value caches and the scratch.
    uint64_t memory_bytes() const;
    // Borrowed from the creator of this object.
    thread_pool &pool() const;

private:
    struct state;
    explicit cpu_model(std::unique_ptr<state> new_state);
    std::unique_ptr<state> state_;
};

}  // namespace moorage::core

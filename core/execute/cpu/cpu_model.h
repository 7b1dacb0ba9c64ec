// cpu_model.h - a model's arithmetic on the CPU. model_compute.h says what is called when.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/execute/thread_pool.h"
#include "core/execute/node_compute.h"
#include "core/model/model.h"
#include "core/source/pass_results.h"
#include "core/source/source.h"

namespace moorage::core {

class cpu_model final : public node_compute {
public:
    // `model` and `pool` are borrowed. An error if the caches need more memory than there is.
    static result<std::unique_ptr<cpu_model>> create(const model &model, thread_pool &pool,
                                                     const compute_limits &limits);
    ~cpu_model() override;

    void begin(const pass &tokens) override;
    void run_attention(uint32_t layer) override;
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override;
    // Rows [first, first + count) of `expert`. `part_weights`: the weights of those rows alone;
    // null: in place, as the model has them. Segments of an expert come in rising order.
    void expert(uint32_t layer, uint32_t expert, uint32_t first, uint32_t count,
                const mlp_weights *part_weights);
    // Several whole experts in place, in one parallel loop.
    void run_experts(uint32_t layer, std::span<const uint32_t> expert_ids);
    void run_experts(uint32_t layer, std::span<const expert_call> calls) override;
    std::span<const float> expert_input() const override;
    std::span<const uint32_t> rows_of(uint32_t expert) const override;
    std::span<float> outputs_of(uint32_t expert) override;
    void predict(uint32_t layer, std::span<const uint32_t> ready_experts) override;
    void run_head() override;

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

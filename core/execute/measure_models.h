// measure_models.h - small models of random weights to measure with, by the sizes that matter.
#pragma once

#include <memory>

#include "core/base/text.h"
#include "core/model/model.h"

namespace moorage::core {

struct probe_shape {
    uint32_t layers = 1, hidden = 64, moe_intermediate = 64, experts = 8, top_k = 2,
             vocabulary = 256;
};

inline result<std::unique_ptr<model>> probe_model(const probe_shape &shape) {
    const uint32_t heads = shape.hidden / 32;
    const std::string text = format(
        R"({{"model_type": "qwen2_moe", "hidden_size": {}, "num_hidden_layers": {},
            "num_attention_heads": {}, "num_key_value_heads": {}, "num_experts": {},
            "num_experts_per_tok": {}, "moe_intermediate_size": {}, "intermediate_size": 64,
            "shared_expert_intermediate_size": {}, "vocab_size": {}, "hidden_act": "silu",
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
            "tie_word_embeddings": true}})",
        shape.hidden, shape.layers, heads, heads / 2, shape.experts, shape.top_k,
        shape.moe_intermediate, 2 * shape.moe_intermediate, shape.vocabulary);
    const auto config = parse_model_config(text, "measured model");
    if (!config) return config.failure();
    return random_model(*config, {});
}

}  // namespace moorage::core

// config_difference.cpp - compares two configurations field by field, and rotations by their
// results.
#include "core/model/config_difference.h"

#include <cmath>

#include "core/base/text.h"
#include "core/model/rope.h"

namespace moorage::core {

namespace {

bool is_alike(double source, double converted) {
    return std::abs(source - converted) <= 1e-6 * std::max(std::abs(source), std::abs(converted));
}

class comparison {
public:
    template <class Value>
    void compare(const char *name, Value source, Value converted) {
        if (!text_.empty() || is_alike(static_cast<double>(source), static_cast<double>(converted)))
            return;
        text_ = format("{} is {:g} and would be {:g}", name, static_cast<double>(source),
                       static_cast<double>(converted));
    }
    void fail(const char *text) {
        if (text_.empty()) text_ = text;
    }
    std::string text() && { return std::move(text_); }

private:
    std::string text_;
};

void compare_rotations(const model_config &source, const model_config &converted,
                       comparison &differences) {
    differences.compare("the number of rotated dimensions", source.rope.dimensions,
                        converted.rope.dimensions);
    if (source.rope.dimensions != converted.rope.dimensions) return;
    for (const uint64_t context : {uint64_t{1}, uint64_t{source.positions_max}}) {
        const rope_rotation wanted = compute_rope_rotation(source.rope, context),
                            read = compute_rope_rotation(converted.rope, context);
        differences.compare("the factor of cosines and sines", wanted.attention_factor,
                            read.attention_factor);
        for (size_t i = 0; i < wanted.frequencies.size(); ++i)
            if (std::abs(wanted.frequencies[i] - read.frequencies[i]) >
                2e-6F * wanted.frequencies[i])
                return differences.fail("rotations would be of other frequencies");
    }
}

}  // namespace

std::string difference_of(const model_config &source, const model_config &converted) {
    comparison differences;
    differences.compare("num_hidden_layers", source.layers, converted.layers);
    differences.compare("hidden_size", source.hidden, converted.hidden);
    differences.compare("vocab_size", source.vocabulary, converted.vocabulary);
    differences.compare("max_position_embeddings", source.positions_max, converted.positions_max);
    differences.compare("rms_norm_eps", source.norm_epsilon, converted.norm_epsilon);
    const attention_config &source_attention = source.attention,
                           &converted_attention = converted.attention;
    differences.compare("num_attention_heads", source_attention.heads, converted_attention.heads);
    differences.compare("num_key_value_heads", source_attention.kv_heads,
                        converted_attention.kv_heads);
    differences.compare("head_dim", source_attention.head_dim, converted_attention.head_dim);
    differences.compare("the length of values", source_attention.value_dim,
                        converted_attention.value_dim);
    differences.compare("q_lora_rank", source_attention.query_lora_rank,
                        converted_attention.query_lora_rank);
    differences.compare("kv_lora_rank", source_attention.kv_lora_rank,
                        converted_attention.kv_lora_rank);
    differences.compare("the scale of scores", source_attention.scale, converted_attention.scale);
    differences.compare("clip_qkv", source_attention.clip_qkv, converted_attention.clip_qkv);
    differences.compare("the norm of queries and keys", int(source_attention.norm),
                        int(converted_attention.norm));
    differences.compare("the bias of queries, keys and values", source_attention.qkv_bias,
                        converted_attention.qkv_bias);
    differences.compare("the bias of attention's output", source_attention.output_bias,
                        converted_attention.output_bias);
    differences.compare("sliding_window", source_attention.window, converted_attention.window);
    if (source_attention.sliding != converted_attention.sliding)
        differences.fail("other layers would have a sliding window");
    compare_rotations(source, converted, differences);
    const router_config &source_router = source.router, &converted_router = converted.router;
    differences.compare("norm_topk_prob", source_router.normalise, converted_router.normalise);
    differences.compare("routed_scaling_factor", source_router.scale, converted_router.scale);
    differences.compare("router_jitter_noise", source_router.jitter, converted_router.jitter);
    differences.compare("n_group", source_router.groups, converted_router.groups);
    differences.compare("topk_group", source_router.groups_chosen, converted_router.groups_chosen);
    differences.compare("num_experts", source.experts, converted.experts);
    differences.compare("num_experts_per_tok", source.top_k, converted.top_k);
    differences.compare("moe_intermediate_size", source.moe_intermediate,
                        converted.moe_intermediate);
    differences.compare("the rows of shared experts", source.shared_intermediate,
                        converted.shared_intermediate);
    differences.compare("intermediate_size", source.dense_intermediate,
                        converted.dense_intermediate);
    if (source.moe != converted.moe) differences.fail("other layers would have experts");
    differences.compare("the activation", int(source.activation), int(converted.activation));
    differences.compare("swiglu_limit", source.activation_limit, converted.activation_limit);
    // A separate head may contain a copy of the embedding.
    if (converted.tied_embedding)
        differences.compare("tie_word_embeddings", source.tied_embedding, converted.tied_embedding);
    differences.compare("lm_head_bias", source.head_bias, converted.head_bias);
    differences.compare("embedding_multiplier", source.embedding_multiplier,
                        converted.embedding_multiplier);
    differences.compare("residual_multiplier", source.residual_multiplier,
                        converted.residual_multiplier);
    differences.compare("logits_scaling", source.logits_divisor, converted.logits_divisor);
    return std::move(differences).text();
}

}  // namespace moorage::core

// gguf_metadata.cpp - writes keys under llama.cpp's names.
#include "tools/convert/gguf_metadata.h"

#include <cmath>

#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/gguf_config.h"
#include "core/model/rope.h"

namespace moorage::core {

namespace {

// Keys with the architecture's name as prefix.
class prefixed_keys {
public:
    prefixed_keys(const char *name, gguf_keys &keys) : name_(name), keys_(keys) {}
    void number(const char *key, uint32_t value) { keys_.number(full(key), value); }
    void real(const char *key, double value) { keys_.real(full(key), value); }
    void text(const char *key, const char *value) { keys_.text(full(key), value); }
    void flag(const char *key, bool value) { keys_.flag(full(key), value); }

private:
    std::string full(const char *key) const { return format("{}.{}", name_, key); }
    const char *name_;
    gguf_keys &keys_;
};

void put_sizes(const model_config &config, const architecture &arch, prefixed_keys &keys) {
    keys.number("context_length", config.positions_max);
    keys.number("embedding_length", config.hidden);
    keys.number("block_count", config.layers);
    keys.number("vocab_size", config.vocabulary);
    keys.number("feed_forward_length", config.dense_intermediate != 0 ? config.dense_intermediate
                                                                      : config.moe_intermediate);
    keys.real("attention.layer_norm_rms_epsilon", config.norm_epsilon);
    keys.number("expert_count", config.experts);
    keys.number("expert_used_count", config.top_k);
    keys.number("expert_feed_forward_length", config.moe_intermediate);
    if (arch.shared == shared_rule::counted)
        keys.number("expert_shared_count", config.shared_intermediate / config.moe_intermediate);
    else if (config.shared_intermediate != 0)
        keys.number("expert_shared_feed_forward_length", config.shared_intermediate);
    if (arch.dense == dense_rule::first)
        keys.number("leading_dense_block_count", config.moe_layers().front());
    if (!arch.multipliers) return;
    keys.real("embedding_scale", config.embedding_multiplier);
    keys.real("residual_scale", config.residual_multiplier);
    keys.real("logit_scale", config.logits_divisor);
    keys.real("attention.scale", config.attention.scale);
}

void put_attention(const model_config &config, prefixed_keys &keys) {
    const attention_config &attention = config.attention;
    const uint32_t rotated = config.rope.dimensions;
    keys.number("attention.head_count", attention.heads);
    keys.number("rope.dimension_count", rotated);
    if (attention.window != 0) keys.number("attention.sliding_window", attention.window);
    if (attention.kind == attention_kind::grouped) {
        // If keys are normalised over all heads, there are as many key heads as query heads.
        if (attention.norm != query_key_norm::whole)
            keys.number("attention.head_count_kv", attention.kv_heads);
        keys.number("attention.key_length", attention.head_dim);
        keys.number("attention.value_length", attention.value_dim);
        return;
    }
    // The compressed cache is one key head that all heads share. The sizes of real heads are
    // separate keys.
    keys.number("attention.head_count_kv", 1);
    keys.number("attention.q_lora_rank", attention.query_lora_rank);
    keys.number("attention.kv_lora_rank", attention.kv_lora_rank);
    keys.number("attention.key_length", attention.kv_lora_rank + rotated);
    keys.number("attention.value_length", attention.kv_lora_rank);
    keys.number("attention.key_length_mla", attention.head_dim);
    keys.number("attention.value_length_mla", attention.value_dim);
}

void put_router(const model_config &config, const architecture &arch, prefixed_keys &keys) {
    if (!arch.grouped_routing) return;
    constexpr uint32_t softmax = 1, sigmoid = 2;
    keys.number("expert_gating_func", arch.score == score_kind::sigmoid ? sigmoid : softmax);
    keys.flag("expert_weights_norm", config.router.normalise);
    keys.real("expert_weights_scale", config.router.scale);
    if (config.router.groups <= 1) return;
    keys.number("expert_group_count", config.router.groups);
    keys.number("expert_group_used_count", config.router.groups_chosen);
}

void put_rotation(const model_config &config, prefixed_keys &keys) {
    const rope_config &rope = config.rope;
    keys.real("rope.freq_base", rope.theta);
    if (rope.kind == rope_kind::longrope) {
        keys.number("rope.scaling.original_context_length", rope.original_positions);
        keys.real("rope.scaling.attn_factor", compute_rope_rotation(rope, 1).attention_factor);
    }
    if (rope.kind != rope_kind::linear && rope.kind != rope_kind::yarn) return;
    const bool yarn = rope.kind == rope_kind::yarn;
    keys.text("rope.scaling.type", yarn ? "yarn" : "linear");
    keys.real("rope.scaling.factor", rope.factor);
    if (!yarn) return;
    keys.number("rope.scaling.original_context_length", rope.original_positions);
    keys.real("rope.scaling.yarn_beta_fast", rope.beta_fast);
    keys.real("rope.scaling.yarn_beta_slow", rope.beta_slow);
    const double usual = rope.factor <= 1 ? 1 : 0.1 * std::log(rope.factor) + 1;
    if (config.attention.kind == attention_kind::latent)
        keys.real("rope.scaling.yarn_log_multiplier", 0.1 * rope.mscale_all);
    else if (rope.attention_factor != 0)
        keys.real("rope.scaling.attn_factor", rope.attention_factor / usual);
}

}  // namespace

void put_config(const model_config &config, gguf_keys &keys) {
    const architecture &arch = *find_architecture(config.architecture);
    const gguf_architecture &gguf_arch = gguf_architecture_of(config.architecture);
    prefixed_keys named(gguf_arch.name, keys);
    put_sizes(config, arch, named);
    put_attention(config, named);
    put_router(config, arch, named);
    put_rotation(config, named);
}

rotation_factors rotation_factors_of(const model_config &config) {
    rotation_factors factors;
    const auto narrowed = [](const std::vector<double> &values) {
        return std::vector<float>(values.begin(), values.end());
    };
    if (config.rope.kind == rope_kind::longrope) {
        factors.short_contexts = narrowed(config.rope.short_factor);
        factors.long_contexts = narrowed(config.rope.long_factor);
    }
    if (config.rope.kind != rope_kind::llama3) return factors;
    const std::vector<float> scaled_frequencies = compute_rope_rotation(config.rope, 1).frequencies;
    for (size_t i = 0; i < scaled_frequencies.size(); ++i) {
        const double plain_frequency =
            std::pow(config.rope.theta, -2.0 * static_cast<double>(i) / config.rope.dimensions);
        factors.all_contexts.push_back(static_cast<float>(plain_frequency / scaled_frequencies[i]));
    }
    return factors;
}

}  // namespace moorage::core

// gguf_metadata.cpp - writes keys under llama.cpp's names.
#include "core/convert/gguf_metadata.h"

#include <cmath>

#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/gguf_config.h"
#include "core/model/rope.h"

namespace moorage::core {

namespace {

// Keys with the architecture's name as prefix.
class named_keys {
public:
    named_keys(const char *name, gguf_keys &keys) : name_(name), keys_(keys) {}
    void number(const char *key, uint32_t value) { keys_.number(full(key), value); }
    void real(const char *key, double value) { keys_.real(full(key), value); }
    void text(const char *key, const char *value) { keys_.text(full(key), value); }
    void flag(const char *key, bool value) { keys_.flag(full(key), value); }

private:
    std::string full(const char *key) const { return format("{}.{}", name_, key); }
    const char *name_;
    gguf_keys &keys_;
};

void put_sizes(const model_config &of, const architecture &row, named_keys &keys) {
    keys.number("context_length", of.positions_max);
    keys.number("embedding_length", of.hidden);
    keys.number("block_count", of.layers);
    keys.number("vocab_size", of.vocabulary);
    keys.number("feed_forward_length",
                of.dense_intermediate != 0 ? of.dense_intermediate : of.moe_intermediate);
    keys.real("attention.layer_norm_rms_epsilon", of.norm_epsilon);
    keys.number("expert_count", of.experts);
    keys.number("expert_used_count", of.top_k);
    keys.number("expert_feed_forward_length", of.moe_intermediate);
    if (row.shared == shared_rule::counted)
        keys.number("expert_shared_count", of.shared_intermediate / of.moe_intermediate);
    else if (of.shared_intermediate != 0)
        keys.number("expert_shared_feed_forward_length", of.shared_intermediate);
    if (row.dense == dense_rule::first)
        keys.number("leading_dense_block_count", of.moe_layers().front());
    if (!row.multipliers) return;
    keys.real("embedding_scale", of.embedding_multiplier);
    keys.real("residual_scale", of.residual_multiplier);
    keys.real("logit_scale", of.logits_divisor);
    keys.real("attention.scale", of.attention.scale);
}

void put_attention(const model_config &of, named_keys &keys) {
    const attention_config &own = of.attention;
    const uint32_t rotated = of.rope.dimensions;
    keys.number("attention.head_count", own.heads);
    keys.number("rope.dimension_count", rotated);
    if (own.window != 0) keys.number("attention.sliding_window", own.window);
    if (own.kind == attention_kind::grouped) {
        // If keys are normalised over all heads, there are as many key heads as query heads.
        if (own.norm != query_key_norm::whole) keys.number("attention.head_count_kv", own.kv_heads);
        keys.number("attention.key_length", own.head_dim);
        keys.number("attention.value_length", own.value_dim);
        return;
    }
    // The compressed cache is one key head that all heads share. The sizes of real heads are
    // separate keys.
    keys.number("attention.head_count_kv", 1);
    keys.number("attention.q_lora_rank", own.query_lora_rank);
    keys.number("attention.kv_lora_rank", own.kv_lora_rank);
    keys.number("attention.key_length", own.kv_lora_rank + rotated);
    keys.number("attention.value_length", own.kv_lora_rank);
    keys.number("attention.key_length_mla", own.head_dim);
    keys.number("attention.value_length_mla", own.value_dim);
}

void put_router(const model_config &of, const architecture &row, named_keys &keys) {
    if (!row.grouped_routing) return;
    constexpr uint32_t softmax = 1, sigmoid = 2;
    keys.number("expert_gating_func", row.score == score_kind::sigmoid ? sigmoid : softmax);
    keys.flag("expert_weights_norm", of.router.normalise);
    keys.real("expert_weights_scale", of.router.scale);
    if (of.router.groups <= 1) return;
    keys.number("expert_group_count", of.router.groups);
    keys.number("expert_group_used_count", of.router.groups_chosen);
}

void put_rotation(const model_config &of, named_keys &keys) {
    const rope_config &rope = of.rope;
    keys.real("rope.freq_base", rope.theta);
    if (rope.kind == rope_kind::longrope) {
        keys.number("rope.scaling.original_context_length", rope.original_positions);
        keys.real("rope.scaling.attn_factor", rope_turn_of(rope, 1).attention_factor);
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
    if (of.attention.kind == attention_kind::latent)
        keys.real("rope.scaling.yarn_log_multiplier", 0.1 * rope.mscale_all);
    else if (rope.attention_factor != 0)
        keys.real("rope.scaling.attn_factor", rope.attention_factor / usual);
}

}  // namespace

void put_config(const model_config &of, gguf_keys &keys) {
    const architecture &row = *find_architecture(of.architecture);
    const gguf_architecture &own = gguf_architecture_of(of.architecture);
    named_keys named(own.name, keys);
    put_sizes(of, row, named);
    put_attention(of, named);
    put_router(of, row, named);
    put_rotation(of, named);
}

rotation_factors rotation_factors_of(const model_config &of) {
    rotation_factors made;
    const auto narrowed = [](const std::vector<double> &from) {
        return std::vector<float>(from.begin(), from.end());
    };
    if (of.rope.kind == rope_kind::longrope) {
        made.of_short = narrowed(of.rope.short_factor);
        made.of_long = narrowed(of.rope.long_factor);
    }
    if (of.rope.kind != rope_kind::llama3) return made;
    const std::vector<float> turned = rope_turn_of(of.rope, 1).frequencies;
    for (size_t i = 0; i < turned.size(); ++i) {
        const double plain =
            std::pow(of.rope.theta, -2.0 * static_cast<double>(i) / of.rope.dimensions);
        made.both.push_back(static_cast<float>(plain / turned[i]));
    }
    return made;
}

}  // namespace moorage::core

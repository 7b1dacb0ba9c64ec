// config_difference.cpp - compares two configurations field by field, and rotations by their
// results.
#include "core/model/config_difference.h"

#include <cmath>

#include "core/base/text.h"
#include "core/model/rope.h"

namespace moorage::core {

namespace {

bool alike(double is, double made) {
    return std::abs(is - made) <= 1e-6 * std::max(std::abs(is), std::abs(made));
}

class comparison {
public:
    template <class Value>
    void same(const char *name, Value is, Value made) {
        if (!text_.empty() || alike(static_cast<double>(is), static_cast<double>(made))) return;
        text_ = format("{} is {:g} and would be {:g}", name, static_cast<double>(is),
                       static_cast<double>(made));
    }
    void fail(const char *text) {
        if (text_.empty()) text_ = text;
    }
    std::string text() && { return std::move(text_); }

private:
    std::string text_;
};

void compare_rotations(const model_config &is, const model_config &made, comparison &out) {
    out.same("the number of rotated dimensions", is.rope.dimensions, made.rope.dimensions);
    if (is.rope.dimensions != made.rope.dimensions) return;
    for (const uint64_t context : {uint64_t{1}, uint64_t{is.positions_max}}) {
        const rope_turn wanted = rope_turn_of(is.rope, context),
                        read = rope_turn_of(made.rope, context);
        out.same("the factor of cosines and sines", wanted.attention_factor, read.attention_factor);
        for (size_t i = 0; i < wanted.frequencies.size(); ++i)
            if (std::abs(wanted.frequencies[i] - read.frequencies[i]) >
                2e-6F * wanted.frequencies[i])
                return out.fail("rotations would be of other frequencies");
    }
}

}  // namespace

std::string difference_of(const model_config &is, const model_config &made) {
    comparison out;
    out.same("num_hidden_layers", is.layers, made.layers);
    out.same("hidden_size", is.hidden, made.hidden);
    out.same("vocab_size", is.vocabulary, made.vocabulary);
    out.same("max_position_embeddings", is.positions_max, made.positions_max);
    out.same("rms_norm_eps", is.norm_epsilon, made.norm_epsilon);
    const attention_config &a = is.attention, &b = made.attention;
    out.same("num_attention_heads", a.heads, b.heads);
    out.same("num_key_value_heads", a.kv_heads, b.kv_heads);
    out.same("head_dim", a.head_dim, b.head_dim);
    out.same("the length of values", a.value_dim, b.value_dim);
    out.same("q_lora_rank", a.query_lora_rank, b.query_lora_rank);
    out.same("kv_lora_rank", a.kv_lora_rank, b.kv_lora_rank);
    out.same("the scale of scores", a.scale, b.scale);
    out.same("clip_qkv", a.clip_qkv, b.clip_qkv);
    out.same("the norm of queries and keys", int(a.norm), int(b.norm));
    out.same("the bias of queries, keys and values", a.qkv_bias, b.qkv_bias);
    out.same("the bias of attention's output", a.output_bias, b.output_bias);
    out.same("sliding_window", a.window, b.window);
    if (a.sliding != b.sliding) out.fail("other layers would have a sliding window");
    compare_rotations(is, made, out);
    const router_config &r = is.router, &s = made.router;
    out.same("norm_topk_prob", r.normalise, s.normalise);
    out.same("routed_scaling_factor", r.scale, s.scale);
    out.same("router_jitter_noise", r.jitter, s.jitter);
    out.same("n_group", r.groups, s.groups);
    out.same("topk_group", r.groups_chosen, s.groups_chosen);
    out.same("num_experts", is.experts, made.experts);
    out.same("num_experts_per_tok", is.top_k, made.top_k);
    out.same("moe_intermediate_size", is.moe_intermediate, made.moe_intermediate);
    out.same("the rows of shared experts", is.shared_intermediate, made.shared_intermediate);
    out.same("intermediate_size", is.dense_intermediate, made.dense_intermediate);
    if (is.moe != made.moe) out.fail("other layers would have experts");
    out.same("the activation", int(is.activation), int(made.activation));
    out.same("swiglu_limit", is.activation_limit, made.activation_limit);
    // A separate head may contain a copy of the embedding.
    if (made.tied_embedding)
        out.same("tie_word_embeddings", is.tied_embedding, made.tied_embedding);
    out.same("lm_head_bias", is.head_bias, made.head_bias);
    out.same("embedding_multiplier", is.embedding_multiplier, made.embedding_multiplier);
    out.same("residual_multiplier", is.residual_multiplier, made.residual_multiplier);
    out.same("logits_scaling", is.logits_divisor, made.logits_divisor);
    return std::move(out).text();
}

}  // namespace moorage::core

// architectures.h - one row per architecture: its rules, the config keys that set them, and the
// names of its tensors.
//
// A model family made of known parts needs only a new row in architectures.cpp. Everything else is
// read from keys that all families share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/model/model_config.h"

namespace moorage::core {

enum class window_rule : uint8_t {
    none,
    all,         // every layer uses sliding_window
    when_used,   // as all, if use_sliding_window is true
    upper,       // as when_used, in layers from max_window_layers on
    alternating  // every second layer, starting with the first
};
enum class shared_rule : uint8_t {
    none,
    counted,  // n_shared_experts of moe_intermediate_size
    sized     // shared_expert_intermediate_size, with a gate
};
enum class dense_rule : uint8_t {
    none,
    stepped,  // decoder_sparse_step and mlp_only_layers
    first     // first_k_dense_replace and moe_layer_freq
};
enum class norm_weights_rule : uint8_t { never, always, by_key };  // norm_topk_prob

struct tensor_names {
    const char *router;            // after the layer's name, without .weight
    const char *expert;            // the name before an expert's number; null: experts are always
                                   // fused
    const char *gate, *up, *down;  // of a separate expert, without .weight
    const char *fused_in;          // gate and up of all experts [E, 2 I, H]; null: no fused form
    const char *fused_out;         // down of all experts [E, H, I]
    const char *shared = nullptr;  // the shared expert
    const char *correction = nullptr;
    bool transposed = false;  // fused tensors alternate gate and up and are stored inputs x
                              // outputs; MXFP4 also alternates but is outputs x inputs
};

struct architecture {
    const char *name;  // model_type
    tensor_names tensors;
    norm_kind norm = norm_kind::rms;
    attention_kind attention = attention_kind::grouped;
    query_key_norm norm_qk = query_key_norm::none;
    const char *norm_qk_key = nullptr;  // the norm exists only if this key is true
    const char *bias_key = nullptr;     // for query, key and value; null: no bias
    bool bias_default = false;
    bool output_bias = false;  // bias_key applies to the output, too
    bool sinks = false;
    bool interleaved = false;  // RoPE pairs, unless rope_interleave says otherwise
    double partial_rotary = 1;
    window_rule window = window_rule::none;

    const char *expert_size_key = "moe_intermediate_size";
    score_kind score = score_kind::softmax;
    norm_weights_rule normalise = norm_weights_rule::never;
    bool normalise_default = false;
    bool grouped_routing = false;  // uses n_group, topk_group, routed_scaling_factor
    group_rule group = group_rule::none;
    bool names_groups = false;  // n_group and topk_group are required, not 1 by default
    bool router_bias = false;
    bool correction_bias = false;
    shared_rule shared = shared_rule::none;
    dense_rule dense = dense_rule::none;
    bool clamped_activation = false;  // ignores hidden_act
    bool expert_bias = false;
    bool multipliers = false;  // of attention, embedding, residual, logits (Granite)
};

std::span<const architecture> architectures();
// Null: unknown.
const architecture *find_architecture(std::string_view name);

}  // namespace moorage::core

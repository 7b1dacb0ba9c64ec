// architectures.h - one row per architecture: its rules, the keys that hold them, and the names of
// its tensors.
//
// Adding a model family that is made of known parts is a row in architectures.cpp. What a row does
// not say is read from keys that all families share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/model/model_config.h"

namespace moorage::core {

enum class window_rule : uint8_t {
    none,
    all,         // sliding_window, in every layer
    when_used,   // the same, where use_sliding_window says so
    upper,       // the same, in layers from max_window_layers on
    alternating  // every second layer from the first
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
    const char *router;            // under the layer, without .weight
    const char *expert;            // before the number of a separate expert; null: always fused
    const char *gate, *up, *down;  // of a separate expert, without .weight
    const char *fused_in;          // gate and up of all experts [E, 2 I, H]; null: not known
    const char *fused_out;         // down of all experts [E, H, I]
    const char *shared = nullptr;  // the shared expert
    const char *correction = nullptr;
    bool turned = false;  // fused: gate and up alternate, stored inputs x outputs; MXFP4 likewise
                          // alternating but outputs x inputs
};

struct architecture {
    const char *name;  // model_type
    tensor_names tensors;
    norm_kind norm = norm_kind::rms;
    attention_kind attention = attention_kind::grouped;
    query_key_norm norm_qk = query_key_norm::none;
    const char *norm_qk_key = nullptr;  // the norm exists only where this key is true
    const char *bias_key = nullptr;     // of query, key and value; null: they have none
    bool bias_default = false;
    bool output_bias = false;  // the key above is for the output, too
    bool sinks = false;
    bool interleaved = false;  // RoPE, where rope_interleave says nothing else
    double partial_rotary = 1;
    window_rule window = window_rule::none;

    const char *expert_size_key = "moe_intermediate_size";
    score_kind score = score_kind::softmax;
    norm_weights_rule normalise = norm_weights_rule::never;
    bool normalise_default = false;
    bool grouped_routing = false;  // n_group, topk_group, routed_scaling_factor
    group_rule group = group_rule::none;
    bool names_groups = false;  // n_group and topk_group have no default that is 1
    bool router_bias = false;
    bool correction_bias = false;
    shared_rule shared = shared_rule::none;
    dense_rule dense = dense_rule::none;
    bool clamped_activation = false;  // whatever hidden_act says
    bool expert_bias = false;
    bool multipliers = false;  // attention, embedding, residual, logits (Granite)
};

std::span<const architecture> architectures();
// Null: not known.
const architecture *find_architecture(std::string_view name);

}  // namespace moorage::core

// model_config.h - what a model is: every size and every rule that tells one architecture from
// another.
//
//   auto config = parse_model_config(text, "DIR/config.json");
//   if (!config) return config.failure();
//   config->attention.kind == attention_kind::latent
//
// Read from a Hugging Face config.json, old and new key spellings alike. An architecture is a row
// of a table (architectures.cpp): its default rules and the names of its tensors; nothing else in
// the project knows a model by name. Figures are checked against limits when they are read, so
// products of them do not overflow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

enum class norm_kind : uint8_t { rms, layer };  // layer: mean removed, with a bias
enum class attention_kind : uint8_t {
    grouped,  // query heads share key and value heads
    latent    // keys and values of all heads from one compressed vector (DeepSeek-V2, 2.1)
};
enum class query_key_norm : uint8_t { none, per_head, whole };  // before RoPE
enum class score_kind : uint8_t {
    softmax,            // over all experts, then top-k
    sigmoid,            // of each, then top-k (DeepSeek-V3)
    softmax_of_chosen,  // top-k of the logits, then softmax over them (gpt-oss, Granite)
    sparsemixer         // one after the other, the rest masked by a threshold (Phi-3.5-MoE)
};
enum class group_rule : uint8_t { none, best, best_two };  // how a group of experts is scored
enum class activation_kind : uint8_t {
    silu,           // silu(gate) * up
    gelu,           // gelu(gate) * up, by erf
    gelu_tanh,      // its usual approximation
    clamped_swiglu  // (up + 1) * gate * sigmoid(1.702 gate), both clamped (gpt-oss)
};
enum class rope_kind : uint8_t { plain, linear, dynamic, yarn, llama3, longrope };

struct rope_config {
    rope_kind kind = rope_kind::plain;
    double theta = 10000;
    uint32_t dimensions = 0;   // rotated, of each head; the rest passes
    bool interleaved = false;  // pairs (0, 1), (2, 3), ... instead of (0, d/2), (1, d/2 + 1), ...
    double factor = 1;
    uint32_t original_positions = 0;  // of the training before scaling
    double beta_fast = 32, beta_slow = 1;
    bool truncate = true;               // yarn: bounds rounded to whole dimensions
    double mscale = 0, mscale_all = 0;  // yarn; 0: not given
    double attention_factor = 0;        // yarn, longrope; 0: by the rule of the kind
    double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
    std::vector<double> short_factor, long_factor;               // longrope, dimensions / 2 each
};

struct attention_config {
    attention_kind kind = attention_kind::grouped;
    uint32_t heads = 0, kv_heads = 0;
    uint32_t head_dim = 0;         // of queries and keys, all parts
    uint32_t value_dim = 0;        // of values; grouped: head_dim
    uint32_t query_lora_rank = 0;  // latent; 0: queries are projected at once
    uint32_t kv_lora_rank = 0;     // latent
    uint32_t nope_dim = 0;         // latent: of head_dim, not rotated; rotated: rope.dimensions
    double scale = 0;              // of the scores, complete (yarn's part included)
    query_key_norm norm = query_key_norm::none;
    double clip_qkv = 0;  // OLMoE; 0: none
    bool qkv_bias = false, output_bias = false;
    bool sinks = false;   // one more logit a head that takes part in the softmax only
    uint32_t window = 0;  // sliding layers see the last `window` tokens, their own included
    std::vector<uint8_t> sliding;  // [layers] 1: a sliding layer; empty: none
};

struct router_config {
    score_kind score = score_kind::softmax;
    bool normalise = false;  // weights of the chosen divided by their sum
    double scale = 1;        // of the weights
    double jitter = 0;       // sparsemixer: 2 * jitter is the threshold
    uint32_t groups = 1, groups_chosen = 1;
    group_rule group = group_rule::none;
    bool bias = false;             // added to the logits
    bool correction_bias = false;  // added to the scores for choosing only
};

// How a checkpoint has packed its matrices, as quantization_config says; none: as they are.
enum class packing_kind : uint8_t { none, mxfp4, fp8, gptq, awq, compressed };
struct packing_config {
    packing_kind kind = packing_kind::none;
    uint32_t group = 0;           // columns that share a scale; 0: all
    bool zeros_less_one = false;  // gptq: zero points are stored less one
    bool needs_order = false;     // columns belong to groups as a tensor says
    bool needs_zeros = false;     // compressed: without zero points codes would mean other values
};

struct model_config {
    std::string architecture;  // "qwen2_moe", as in model_type
    uint32_t layers = 0;
    uint32_t further_layers = 0;  // behind them: they predict further tokens, and have no use here
    uint32_t hidden = 0;
    uint32_t vocabulary = 0;
    uint32_t positions_max = 0;
    norm_kind norm = norm_kind::rms;
    double norm_epsilon = 1e-6;
    attention_config attention;
    rope_config rope;
    router_config router;

    uint32_t experts = 0;  // routed, per MoE layer
    uint32_t top_k = 0;
    uint32_t moe_intermediate = 0;
    uint32_t part_unit = 32;  // of the parts of experts (weights.h), as their weights' formats ask
    uint32_t shared_intermediate = 0;  // all shared experts as one; 0: none
    bool shared_gate = false;          // its output times a sigmoid
    uint32_t dense_intermediate = 0;   // of layers without experts
    std::vector<uint8_t> moe;          // [layers] 1: has experts
    activation_kind activation = activation_kind::silu;
    double activation_limit = 7;  // clamped_swiglu
    bool expert_bias = false;

    packing_config packing;

    bool tied_embedding = false;  // the head is the embedding
    bool head_bias = false;
    double embedding_multiplier = 1, residual_multiplier = 1, logits_divisor = 1;

    std::vector<uint32_t> moe_layers() const;  // indices of layers with experts, ascending
    // Bytes of the KV cache of one token in one layer, at `value_bytes` a value.
    uint64_t kv_token_layer_bytes(uint32_t value_bytes) const;
};

// `name` is what errors call the text. Errors name the key, the value and the limit; an unknown
// architecture is answered with the list of known ones.
result<model_config> parse_model_config(std::string_view text, const std::string &name);
std::vector<std::string> known_architectures();

}  // namespace moorage::core

// model_config.h - what a model is: every size, and every rule that distinguishes architectures.
//
//   auto config = parse_model_config(text, "DIR/config.json");
//   if (!config) return config.failure();
//   config->attention.kind == attention_kind::latent
//
// Read from a Hugging Face config.json with old or new key spellings. An architecture is a row of a
// table (architectures.cpp) with its default rules and tensor names. Nothing else in the project
// knows a model by name. Figures are checked against limits when they are read, so that products of
// them do not overflow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

enum class norm_kind : uint8_t { rms, layer };  // layer: subtracts the mean and has a bias
enum class attention_kind : uint8_t {
    grouped,  // several query heads share a key and value head
    latent    // one compressed vector gives keys and values of all heads (DeepSeek-V2, 2.1)
};
enum class query_key_norm : uint8_t { none, per_head, whole };  // before RoPE
enum class score_kind : uint8_t {
    softmax,            // over all experts, then top-k
    sigmoid,            // of each score, then top-k (DeepSeek-V3)
    softmax_of_chosen,  // top-k of the logits, then softmax over them (gpt-oss, Granite)
    sparsemixer         // one expert after the other; a threshold masks the rest (Phi-3.5-MoE)
};
enum class group_rule : uint8_t { none, best, best_two };  // how a group of experts is scored
enum class activation_kind : uint8_t {
    silu,           // silu(gate) * up
    gelu,           // gelu(gate) * up, with erf
    gelu_tanh,      // gelu's usual approximation with tanh
    clamped_swiglu  // (up + 1) * gate * sigmoid(1.702 gate), both clamped (gpt-oss)
};
enum class rope_kind : uint8_t { plain, linear, dynamic, yarn, llama3, longrope };

struct rope_config {
    rope_kind kind = rope_kind::plain;
    double theta = 10000;
    uint32_t dimensions = 0;   // rotated dimensions per head; the rest stays
    bool interleaved = false;  // pairs (0, 1), (2, 3), ... instead of (0, d/2), (1, d/2 + 1), ...
    double factor = 1;
    uint32_t original_positions = 0;  // trained length before scaling
    double beta_fast = 32, beta_slow = 1;
    bool truncate = true;               // yarn: rounds bounds to whole dimensions
    double mscale = 0, mscale_all = 0;  // yarn; 0: not given
    double attention_factor = 0;        // yarn, longrope; 0: from the kind's rule
    double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
    std::vector<double> short_factor, long_factor;               // longrope, dimensions / 2 each
};

struct attention_config {
    attention_kind kind = attention_kind::grouped;
    uint32_t heads = 0, kv_heads = 0;
    uint32_t head_dim = 0;         // of queries and keys, with all parts
    uint32_t value_dim = 0;        // of values; grouped: head_dim
    uint32_t query_lora_rank = 0;  // latent; 0: one projection for queries
    uint32_t kv_lora_rank = 0;     // latent
    uint32_t nope_dim = 0;         // latent: part of head_dim that is not rotated; the other part
                                   // is rope.dimensions
    double scale = 0;              // of the scores, including yarn's part
    query_key_norm norm = query_key_norm::none;
    double clip_qkv = 0;  // OLMoE; 0: no clipping
    bool qkv_bias = false, output_bias = false;
    bool sinks = false;   // one more logit per head, only in the softmax
    uint32_t window = 0;  // sliding layers see the last `window` tokens, including the current one
    std::vector<uint8_t> sliding;  // [layers] 1: a sliding layer; empty: none
};

struct router_config {
    score_kind score = score_kind::softmax;
    bool normalise = false;  // divides the weights of the chosen experts by their sum
    double scale = 1;        // factor of the weights
    double jitter = 0;       // sparsemixer: the threshold is 2 * jitter
    uint32_t groups = 1, groups_chosen = 1;
    group_rule group = group_rule::none;
    bool bias = false;             // added to the logits
    bool correction_bias = false;  // added to the scores, only for choosing
};

// How a checkpoint packs its matrices, from quantization_config; none: not packed.
enum class packing_kind : uint8_t { none, mxfp4, fp8, gptq, awq, compressed };
struct packing_config {
    packing_kind kind = packing_kind::none;
    uint32_t group = 0;           // columns that share a scale; 0: all
    bool zeros_less_one = false;  // gptq: stored zero points are one less
    bool needs_order = false;     // a tensor tells the group of each column
    bool needs_zeros = false;     // compressed: the codes need zero points
};

struct model_config {
    std::string architecture;  // "qwen2_moe", as in model_type
    uint32_t layers = 0;
    uint32_t mtp_layers = 0;  // after the others: they predict further tokens and are not used
                              // here
    uint32_t hidden = 0;
    uint32_t vocabulary = 0;
    uint32_t positions_max = 0;
    norm_kind norm = norm_kind::rms;
    double norm_epsilon = 1e-6;
    attention_config attention;
    rope_config rope;
    router_config router;

    uint32_t experts = 0;  // routed experts per MoE layer
    uint32_t top_k = 0;
    uint32_t moe_intermediate = 0;
    uint32_t part_unit = 32;  // unit of the parts of experts (weights.h), from their weights'
                              // formats
    uint32_t shared_intermediate = 0;  // of all shared experts together; 0: none
    bool shared_gate = false;          // multiplies its output by a sigmoid
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
    // Bytes of the KV cache of one token in one layer, with `value_bytes` per value.
    uint64_t kv_token_layer_bytes(uint32_t value_bytes) const;
};

// `name`: the text's name in errors. Errors give the key, the value and the limit. For an unknown
// architecture the error lists the known ones.
result<model_config> parse_model_config(std::string_view text, const std::string &name);
std::vector<std::string> known_architectures();

}  // namespace moorage::core

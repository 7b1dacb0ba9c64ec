// architectures.cpp - the rows of the known architectures.
#include "core/model/architectures.h"

#include <algorithm>
#include <array>

namespace moorage::core {

namespace {

constexpr tensor_names block_sparse = {
    "block_sparse_moe.gate",    "block_sparse_moe.experts", "w1", "w3", "w2",
    "mlp.experts.gate_up_proj", "mlp.experts.down_proj"};

constexpr tensor_names mlp_experts(const char *shared, const char *correction) {
    return {"mlp.gate",
            "mlp.experts",
            "gate_proj",
            "up_proj",
            "down_proj",
            "mlp.experts.gate_up_proj",
            "mlp.experts.down_proj",
            shared,
            correction};
}
constexpr const char *correction = "mlp.gate.e_score_correction_bias";

constexpr std::array<architecture, 10> known = {{
    {.name = "mixtral",
     .tensors = block_sparse,
     .window = window_rule::all,
     .expert_size_key = "intermediate_size",
     .normalise = norm_weights_rule::always},
    {.name = "qwen2_moe",
     .tensors = mlp_experts("mlp.shared_expert", nullptr),
     .bias_key = "qkv_bias",
     .bias_default = true,
     .window = window_rule::upper,
     .normalise = norm_weights_rule::by_key,
     .shared = shared_rule::sized,
     .dense = dense_rule::stepped},
    {.name = "qwen3_moe",
     .tensors = mlp_experts(nullptr, nullptr),
     .norm_qk = query_key_norm::per_head,
     .bias_key = "attention_bias",
     .output_bias = true,
     .window = window_rule::when_used,
     .normalise = norm_weights_rule::by_key,
     .dense = dense_rule::stepped},
    {.name = "olmoe",
     .tensors = mlp_experts(nullptr, nullptr),
     .norm_qk = query_key_norm::whole,
     .bias_key = "attention_bias",
     .output_bias = true,
     .expert_size_key = "intermediate_size",
     .normalise = norm_weights_rule::by_key},
    {.name = "deepseek_v2",
     .tensors = mlp_experts("mlp.shared_experts", nullptr),
     .attention = attention_kind::latent,
     .interleaved = true,
     .grouped_routing = true,
     .group = group_rule::best,
     .shared = shared_rule::counted,
     .dense = dense_rule::first},
    {.name = "deepseek_v3",
     .tensors = mlp_experts("mlp.shared_experts", correction),
     .attention = attention_kind::latent,
     .interleaved = true,
     .score = score_kind::sigmoid,
     .normalise = norm_weights_rule::by_key,
     .normalise_default = true,
     .grouped_routing = true,
     .group = group_rule::best_two,
     .names_groups = true,
     .correction_bias = true,
     .shared = shared_rule::counted,
     .dense = dense_rule::first},
    {.name = "phimoe",
     .tensors = block_sparse,
     .norm = norm_kind::layer,
     .bias_key = "attention_bias",
     .output_bias = true,
     .window = window_rule::all,
     .expert_size_key = "intermediate_size",
     .score = score_kind::sparsemixer},
    {.name = "granitemoe",
     .tensors = {"block_sparse_moe.router.layer", nullptr, "", "", "",
                 "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"},
     .bias_key = "attention_bias",
     .output_bias = true,
     .expert_size_key = "intermediate_size",
     .score = score_kind::softmax_of_chosen,
     .multipliers = true},
    {.name = "gpt_oss",
     .tensors = {.router = "mlp.router",
                 .expert = nullptr,
                 .gate = "",
                 .up = "",
                 .down = "",
                 .fused_in = "mlp.experts.gate_up_proj",
                 .fused_out = "mlp.experts.down_proj",
                 .transposed = true},
     .bias_key = "attention_bias",
     .bias_default = true,
     .output_bias = true,
     .sinks = true,
     .window = window_rule::alternating,
     .expert_size_key = "intermediate_size",
     .score = score_kind::softmax_of_chosen,
     .router_bias = true,
     .clamped_activation = true,
     .expert_bias = true},
    {.name = "glm4_moe",
     .tensors = mlp_experts("mlp.shared_experts", correction),
     .norm_qk = query_key_norm::per_head,
     .norm_qk_key = "use_qk_norm",
     .bias_key = "attention_bias",
     .partial_rotary = 0.5,
     .score = score_kind::sigmoid,
     .normalise = norm_weights_rule::by_key,
     .normalise_default = true,
     .grouped_routing = true,
     .group = group_rule::best_two,
     .correction_bias = true,
     .shared = shared_rule::counted,
     .dense = dense_rule::first},
}};

}  // namespace

std::span<const architecture> architectures() { return known; }

const architecture *find_architecture(std::string_view name) {
    const auto *found = std::ranges::find(known, name, &architecture::name);
    return found == known.end() ? nullptr : found;
}

}  // namespace moorage::core

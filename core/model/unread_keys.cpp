// unread_keys.cpp - the keys of GGUF files that are not supported, one row each.
#include "core/model/unread_keys.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Keys that change the result, with the values that do not. If the architecture uses a key, it has
// been read. Otherwise no other value can be computed.
struct unread_number {
    const char *key;
    double neutral_values[2];
    const char *reason;
};
constexpr const char *no_capping = "soft-capped logits are not supported",
                     *no_use = "the architecture has no use for it",
                     *no_scaling = "only yarn and factors in tensors have a use for it",
                     *no_sparse = "sparse attention is not supported",
                     *no_state = "layers with a state are not supported",
                     *no_sharing = "caches that layers share are not supported",
                     *no_inputs = "further inputs of layers are not supported",
                     *no_window = "windows of other rotations or sizes are not supported",
                     *no_long_text = "scaled attention of long texts is not supported",
                     *no_mixture = "mixtures of this form are not supported",
                     *no_clamp = "clamped activations are supported for gpt-oss only";
constexpr unread_number unread_numbers[] = {
    {"attn_logit_softcapping", {0, 0}, no_capping},
    {"final_logit_softcapping", {0, 0}, no_capping},
    {"router_logit_softcapping", {0, 0}, no_capping},
    {"interleave_moe_layer_step", {0, 1}, "layers with experts have to follow the dense ones"},
    {"moe_every_n_layers", {0, 1}, "layers with experts have to follow the dense ones"},
    {"full_attention_interval", {0, 1}, no_state},
    {"attention.max_alibi_bias", {0, 0}, "only rotary position embeddings are supported"},
    {"attention.relative_buckets_count", {0, 0}, "only rotary position embeddings are supported"},
    {"attention.temperature_length", {0, 0}, no_long_text},
    {"attention.temperature_scale", {0, 0}, no_long_text},
    {"attention.scale", {0, 0}, no_use},
    {"attention.output_scale", {0, 1}, no_use},
    {"attention.value_scale", {0, 1}, no_use},
    {"attention.clamp_kqv", {0, 0}, no_use},
    {"attention.indexer.top_k", {0, 0}, no_sparse},
    {"attention.indexer.head_count", {0, 0}, no_sparse},
    {"attention.indexer.key_length", {0, 0}, no_sparse},
    {"attention.shared_kv_layers", {0, 0}, no_sharing},
    {"attention.key_length_swa", {0, 0}, no_window},
    {"attention.value_length_swa", {0, 0}, no_window},
    {"attention.group_norm_groups", {0, 0}, no_use},
    {"rope.freq_base_swa", {0, 0}, no_window},
    {"rope.dimension_count_swa", {0, 0}, no_window},
    {"embedding_scale", {0, 1}, no_use},
    {"residual_scale", {0, 1}, no_use},
    {"logit_scale", {0, 1}, no_use},
    {"embedding_length_per_layer_input", {0, 0}, no_inputs},
    {"n_deepstack_layers", {0, 0}, no_inputs},
    {"altup.num_inputs", {0, 1}, no_inputs},
    {"expert_weights_scale", {0, 1}, no_use},
    {"expert_group_count", {0, 1}, no_use},
    {"expert_group_scale", {0, 1}, no_use},
    {"experts_per_group", {0, 0}, no_mixture},
    {"expert_chunk_feed_forward_length", {0, 0}, no_mixture},
    {"moe_latent_size", {0, 0}, no_mixture},
    {"leading_dense_block_count", {0, 0}, no_use},
    {"swiglu_clamp_exp", {0, 0}, no_clamp},
    {"swiglu_clamp_shexp", {0, 0}, no_clamp},
    {"ssm.state_size", {0, 0}, no_state},
    {"ssm.conv_kernel", {0, 0}, no_state},
    {"ssm.inner_size", {0, 0}, no_state},
    {"shortconv.l_cache", {0, 0}, no_state},
    {"wkv.head_size", {0, 0}, no_state},
    {"token_shift_count", {0, 0}, no_state},
    {"rescale_every_n_layers", {0, 0}, no_use},
    {"rope.dimension_sections", {0, 0}, "positions in several dimensions are not supported"},
    {"rope.scaling.alpha", {0, 1}, no_scaling},
    {"rope.scaling.attn_factor", {1, 1}, no_scaling},
    {"rope.scaling.yarn_attn_factor", {1, 1}, "rope.scaling.attn_factor is supported"},
    {"rope.scaling.yarn_log_multiplier", {0, 0}, "only yarn of latent attention has a use for it"},
};
struct unread_flag {
    const char *key;
    bool neutral_value;
    const char *reason;
};
constexpr unread_flag unread_flags[] = {
    {"attention.causal", true, "only attention to what was before is supported"},
    {"use_parallel_residual", false, "layers are computed one part after the other"},
    {"swin_norm", false, "norms behind the parts of a layer are not supported"},
};

// Keys that repeat what tensors or other keys say, or that no computation depends on.
constexpr std::string_view known_keys[] = {
    "vocab_size",
    "tensor_data_layout",
    "pooling_type",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.q_lora_rank",
    "attention.layer_norm_epsilon",
    "attention.group_norm_epsilon",
    "attention.sliding_window_pattern",  // the architecture decides which layers slide
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_group_used_count",
    "ssm.group_count",
    "ssm.time_step_rank",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",  // read if the type is yarn
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.original_context_length",
};

// Softmax over the chosen experts needs no rule. Other score kinds have their own rule.
void refuse_other_norm(gguf_reader &reader, const architecture &arch) {
    constexpr const char *key = "expert_weights_norm";
    if (reader.has_read(key) || arch.score == score_kind::softmax_of_chosen) return;
    const bool normalises = arch.normalise == norm_weights_rule::always;
    const std::optional<bool> stored_value = reader.flag(key);
    if (stored_value && *stored_value != normalises)
        reader.fail(key,
                    format("is {}; for {} {} is supported: remove the key, or convert the model "
                           "by its own architecture",
                           *stored_value, arch.name, normalises));
}

void warn_of_unknown(const gguf_reader &reader) {
    std::vector<std::string> unknown;
    for (const std::string_view key : reader.prefixed_keys())
        if (!reader.has_read(key) && std::ranges::find(known_keys, key) == std::end(known_keys))
            unknown.push_back(printable(key));
    if (unknown.empty()) return;
    constexpr size_t shown_max = 4;
    const size_t omitted = unknown.size() - std::min(unknown.size(), shown_max);
    unknown.resize(unknown.size() - omitted);
    log_warning(format("{}: nothing here knows the keys {}{}; what they ask for is not computed",
                       reader.file_path(), fmt::join(unknown, ", "),
                       omitted == 0 ? "" : format(" and {} more", omitted)));
}

}  // namespace

void refuse_unread_keys(gguf_reader &reader, const architecture &arch) {
    for (const auto &[key, neutral_values, reason] : unread_numbers) {
        if (reader.has_read(key)) continue;
        const double value = reader.number(key).value_or(neutral_values[0]);
        if (value != neutral_values[0] && value != neutral_values[1])
            reader.fail(key, format("is {:g}; {}", value, reason));
    }
    for (const auto &[key, neutral_value, reason] : unread_flags)
        if (reader.flag(key).value_or(neutral_value) != neutral_value)
            reader.fail(key, format("is {}; {}", !neutral_value, reason));
    refuse_other_norm(reader, arch);
    if (!reader.failed()) warn_of_unknown(reader);
}

}  // namespace moorage::core

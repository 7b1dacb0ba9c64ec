// unread_config.cpp - the keys of config.json that are not supported, one row each.
#include "core/model/unread_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Keys that change the result, if present or true, in a way that is not supported here.
constexpr const char *no_soft_caps = "soft-capped logits are not supported",
                     *only_rotary = "only rotary position embeddings are supported",
                     *no_further_norms = "norms behind the parts of a layer are not supported",
                     *one_by_one = "layers are computed one part after the other";
constexpr std::pair<const char *, const char *> unsupported[] = {
    {"is_encoder_decoder", "encoder and decoder models are not supported"},
    {"mlp_bias", "biases of expert matrices are supported for gpt_oss only"},
    {"alibi", only_rotary},
    {"use_alibi", only_rotary},
    {"attn_logit_softcapping", no_soft_caps},
    {"final_logit_softcapping", no_soft_caps},
    {"router_logit_softcapping", no_soft_caps},
    {"attention_chunk_size", "chunked attention is not supported"},
    {"no_rope_layers", "layers without position embeddings are not supported"},
    {"index_topk", "sparse attention is not supported"},
    {"query_pre_attn_scalar", "another scale of scores is not supported"},
    {"rope_local_base_freq", "other rotations in some layers are not supported"},
    {"swa_rope_theta", "other rotations in some layers are not supported"},
    {"sandwich_norm", no_further_norms},
    {"use_post_norm", no_further_norms},
    {"use_parallel_residual", one_by_one},
    {"parallel_attn", one_by_one},
    {"moe_apply_router_weight_on_input", "weights of experts count on their outputs"},
};

// Keys that some architectures use, with the value that changes nothing in the others.
struct unused_number {
    const char *key;
    double neutral_value;
    bool (*is_used_by)(const architecture &arch);
};
bool has_multipliers(const architecture &arch) { return arch.multipliers; }
bool has_groups(const architecture &arch) { return arch.grouped_routing; }
bool never_used(const architecture &) { return false; }
constexpr unused_number numbers_without_use[] = {
    {"embedding_multiplier", 1, has_multipliers},
    {"residual_multiplier", 1, has_multipliers},
    {"logits_scaling", 1, has_multipliers},
    {"attention_multiplier", 0, has_multipliers},
    {"routed_scaling_factor", 1, has_groups},
    {"n_group", 1, has_groups},
    {"logit_scale", 1, never_used},
    {"scale_emb", 1, never_used},
};
constexpr double value_max = 1e9;

bool has_norms(const architecture &arch) { return arch.norm_qk != query_key_norm::none; }
bool is_clamped(const architecture &arch) { return arch.clamped_activation; }
bool is_grouped(const architecture &arch) { return arch.attention == attention_kind::grouped; }
// Keys that must be absent, null or false if the architecture does not use them.
constexpr std::pair<const char *, bool (*)(const architecture &row)> switches_without_use[] = {
    {"use_qk_norm", has_norms},
    {"qk_layernorm", has_norms},
    {"swiglu_limit", is_clamped},
    {"clip_qkv", is_grouped},
};

void refuse_other_norm(config_reader &reader, const architecture &arch) {
    if (arch.normalise == norm_weights_rule::by_key || arch.grouped_routing ||
        arch.score == score_kind::softmax_of_chosen)
        return;
    const bool normalises = arch.normalise == norm_weights_rule::always;
    if (reader.flag({"norm_topk_prob"}, normalises) != normalises)
        reader.fail("norm_topk_prob", format("is {}; for {} only {} is supported", !normalises,
                                             arch.name, normalises));
}

void refuse_other_window(config_reader &reader, const architecture &arch,
                         const model_config &config) {
    if (arch.window != window_rule::none || !reader.flag({"use_sliding_window"}, true)) return;
    const double window = reader.number({"sliding_window"}, 0, value_max, 0.0);
    if (window > 0 && window < config.positions_max)
        reader.fail("sliding_window", format("is {:g}; {} has no use for it", window, arch.name));
}

}  // namespace

void refuse_unsupported(config_reader &reader) {
    for (const auto &[key, reason] : unsupported) {
        const json *value = reader.find({key});
        if (value == nullptr || (value->is_boolean() && !value->get<bool>())) continue;
        reader.fail(key, format("is {}; {}", describe_json(*value), reason));
    }
}

void refuse_unused(config_reader &reader, const architecture &arch, const model_config &config) {
    for (const auto &[key, neutral_value, is_used_by] : numbers_without_use) {
        if (is_used_by(arch)) continue;
        const double value = reader.number({key}, -value_max, value_max, neutral_value);
        if (value != neutral_value && value != 0)
            reader.fail(key, format("is {:g}; {} has no use for it", value, arch.name));
    }
    for (const auto &[key, is_used_by] : switches_without_use) {
        const json *value = reader.find({key});
        if (is_used_by(arch) || value == nullptr || *value == false) continue;
        reader.fail(key, format("is {}; {} has no use for it", describe_json(*value), arch.name));
    }
    refuse_other_norm(reader, arch);
    refuse_other_window(reader, arch, config);
    const std::string positions = reader.text({"position_embedding_type"}, "rope");
    if (positions != "rope" && positions != "rotary")
        reader.fail("position_embedding_type",
                    format("is {}; {}", printable(positions), only_rotary));
    if (!is_clamped(arch)) return;
    const std::string activation = reader.text({"hidden_act"}, "silu");
    if (activation != "silu" && activation != "swish")
        reader.fail("hidden_act", format("is {}; for {} silu is supported, clamped",
                                         printable(activation), arch.name));
}

}  // namespace moorage::core

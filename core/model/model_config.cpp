// model_config.cpp - reads a config.json by the rules of its architecture's row.
#include "core/model/model_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/config_reader.h"
#include "core/model/rope_reader.h"
#include "core/model/unread_config.h"

namespace moorage::core {

namespace {

// Within these limits the bytes of all experts, with 4 bytes a weight and 3 matrices, stay below
// 2^63.
constexpr uint32_t layers_max = 1 << 10, hidden_max = 1 << 17, intermediate_max = 1 << 18,
                   experts_max = 1 << 14, heads_max = 1 << 12, head_dim_max = 1 << 12,
                   rank_max = 1 << 16, vocabulary_max = 1 << 24, positions_limit = 1 << 28;
constexpr double multiplier_max = 1e6;

void expect(config_reader &reader, const char *key, const std::string &actual,
            std::string_view wanted) {
    if (actual != wanted)
        reader.fail(key, format("is {}; {} is supported", printable(actual), wanted));
}

// -1 means one group of all columns.
uint32_t read_group(config_reader &reader, key_spellings keys) {
    const json *value = reader.find(keys);
    return value == nullptr || *value == -1 ? 0 : reader.count(keys, 1, hidden_max);
}

void read_fp8(config_reader &reader) {
    expect(reader, "fmt", reader.text({"fmt"}, "e4m3"), "e4m3");
    const std::vector<uint32_t> blocks = reader.counts({"weight_block_size"}, hidden_max, 2);
    if (blocks != std::vector<uint32_t>{128, 128})
        reader.fail("weight_block_size", "has to be [128, 128]; other scales are not supported");
}

void read_gptq(config_reader &reader, packing_config &packing) {
    if (reader.count({"bits"}, 1, 64) != 4) reader.fail("bits", "has to be 4");
    packing.group = read_group(reader, {"group_size"});
    packing.needs_order = reader.flag({"desc_act"}, false);
    const std::string layout = reader.text({"checkpoint_format"}, "gptq");
    packing.zeros_less_one = layout == "gptq";
    if (layout != "gptq" && layout != "gptq_v2")
        reader.fail("checkpoint_format",
                    format("is {}; gptq and gptq_v2 are supported", printable(layout)));
}

void read_awq(config_reader &reader, packing_config &packing) {
    if (reader.count({"bits", "w_bit"}, 1, 64) != 4) reader.fail("bits", "has to be 4");
    packing.group = read_group(reader, {"group_size", "q_group_size"});
    std::string version = reader.text({"version"}, "gemm");
    std::ranges::transform(version, version.begin(), [](unsigned char letter) {
        return static_cast<char>(std::tolower(letter));
    });
    expect(reader, "version", version, "gemm");
}

// true is an old spelling of group.
bool read_order(config_reader &reader) {
    const json *value = reader.find({"actorder"});
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    const std::string order = reader.text({"actorder"}, "static");
    if (order == "group" || order == "dynamic") return true;
    if (order != "weight" && order != "static")
        reader.fail("actorder", format("is {}; group and weight are supported", printable(order)));
    return false;
}

// A single group of settings, which applies to all linear layers that are not ignored.
void read_compressed(config_reader &reader, packing_config &packing) {
    expect(reader, "format", reader.text({"format"}, ""), "pack-quantized");
    const json *groups = reader.object({"config_groups"});
    if (groups == nullptr || groups->size() != 1 || !groups->begin()->is_object())
        return reader.fail("config_groups", "has to hold one group of settings");
    config_reader group_reader(*groups->begin(), reader.name());
    const json *weights = group_reader.object({"weights"});
    if (weights == nullptr) {
        group_reader.fail("weights", "is missing");
    } else {
        config_reader weights_reader(*weights, reader.name());
        if (weights_reader.count({"num_bits"}, 1, 64) != 4)
            weights_reader.fail("num_bits", "has to be 4");
        expect(weights_reader, "type", weights_reader.text({"type"}, "int"), "int");
        const std::string strategy = weights_reader.text({"strategy"}, "group");
        if (strategy != "group" && strategy != "channel")
            weights_reader.fail(
                "strategy", format("is {}; group and channel are supported", printable(strategy)));
        packing.group = strategy == "channel" ? 0 : read_group(weights_reader, {"group_size"});
        packing.needs_order = read_order(weights_reader);
        packing.needs_zeros = !weights_reader.flag({"symmetric"}, true);
        group_reader.adopt(weights_reader);
    }
    reader.adopt(group_reader);
}

void read_packing(config_reader &reader, const architecture &arch, model_config &config) {
    constexpr std::pair<std::string_view, packing_kind> methods[] = {
        {"mxfp4", packing_kind::mxfp4},
        {"fp8", packing_kind::fp8},
        {"gptq", packing_kind::gptq},
        {"awq", packing_kind::awq},
        {"compressed-tensors", packing_kind::compressed}};
    const json *quantization = reader.object({"quantization_config"});
    if (quantization == nullptr) return;
    packing_config &packing = config.packing;
    config_reader packing_reader(*quantization, reader.name() + ": quantization_config");
    const std::string method = packing_reader.text({"quant_method"}, "not named");
    for (const auto &[name, kind] : methods)
        if (method == name) packing.kind = kind;
    if (packing.kind == packing_kind::none ||
        (packing.kind == packing_kind::mxfp4) != arch.tensors.transposed)
        reader.fail("quantization_config",
                    format("has the method {}; mxfp4 of gpt_oss, and fp8, gptq, awq and "
                           "compressed-tensors of others are supported, or convert the weights to "
                           "bfloat16",
                           printable(method)));
    if (packing.kind == packing_kind::fp8) read_fp8(packing_reader);
    if (packing.kind == packing_kind::gptq) read_gptq(packing_reader, packing);
    if (packing.kind == packing_kind::awq) read_awq(packing_reader, packing);
    if (packing.kind == packing_kind::compressed) read_compressed(packing_reader, packing);
    reader.adopt(packing_reader);
}

void read_activation(config_reader &reader, const architecture &arch, model_config &config) {
    constexpr std::pair<std::string_view, activation_kind> known[] = {
        {"silu", activation_kind::silu},
        {"swish", activation_kind::silu},
        {"gelu", activation_kind::gelu},
        {"gelu_pytorch_tanh", activation_kind::gelu_tanh},
        {"gelu_new", activation_kind::gelu_tanh}};
    if (arch.clamped_activation) {
        config.activation = activation_kind::clamped_swiglu;
        config.activation_limit = reader.number({"swiglu_limit"}, 1e-6, multiplier_max, 7.0);
        return;
    }
    const std::string name = reader.text({"hidden_act"}, "silu");
    for (const auto &[spelling, kind] : known)
        if (name == spelling) return void(config.activation = kind);
    reader.fail(
        "hidden_act",
        format("is {}; silu, gelu, gelu_pytorch_tanh and gelu_new are supported", printable(name)));
}

void read_latent(config_reader &reader, model_config &config) {
    attention_config &attention = config.attention;
    attention.kv_heads = attention.heads;
    attention.nope_dim = reader.count({"qk_nope_head_dim"}, 1, head_dim_max);
    config.rope.dimensions = reader.count({"qk_rope_head_dim"}, 2, head_dim_max);
    if (config.rope.dimensions % 2 != 0)
        reader.fail("qk_rope_head_dim",
                    format("is {}; an even number is needed", config.rope.dimensions));
    attention.head_dim = attention.nope_dim + config.rope.dimensions;
    attention.value_dim = reader.count({"v_head_dim"}, 1, head_dim_max);
    attention.kv_lora_rank = reader.count({"kv_lora_rank"}, 1, rank_max);
    attention.query_lora_rank = reader.count({"q_lora_rank"}, 1, rank_max, 0);
    if (reader.flag({"attention_bias"}, false))
        reader.fail("attention_bias", "is true; with latent attention only false is supported");
}

void read_grouped(config_reader &reader, const architecture &arch, model_config &config) {
    attention_config &attention = config.attention;
    attention.kv_heads = reader.count({"num_key_value_heads"}, 1, attention.heads, attention.heads);
    if (attention.heads % attention.kv_heads != 0)
        reader.fail("num_key_value_heads", format("is {}; it has to divide num_attention_heads, {}",
                                                  attention.kv_heads, attention.heads));
    if (!reader.has({"head_dim"}) && config.hidden % attention.heads != 0)
        reader.fail("num_attention_heads", format("is {}; without head_dim it has to divide "
                                                  "hidden_size, {}",
                                                  attention.heads, config.hidden));
    attention.head_dim =
        reader.count({"head_dim"}, 1, head_dim_max, std::max(config.hidden / attention.heads, 1u));
    attention.value_dim = attention.head_dim;
    if (arch.bias_key != nullptr)
        attention.qkv_bias = reader.flag({arch.bias_key}, arch.bias_default);
    attention.output_bias = arch.output_bias && attention.qkv_bias;
    const bool has_norm = arch.norm_qk_key == nullptr || reader.flag({arch.norm_qk_key}, false);
    attention.norm = has_norm ? arch.norm_qk : query_key_norm::none;
    attention.clip_qkv = reader.number({"clip_qkv"}, 1e-6, multiplier_max, 0.0);
    attention.sinks = arch.sinks;
}

// The complete scale: includes Granite's multiplier, and yarn's part for latent attention.
double scale_of(config_reader &reader, const architecture &arch, const model_config &config) {
    const double plain = 1 / std::sqrt(static_cast<double>(config.attention.head_dim));
    if (arch.multipliers) return reader.number({"attention_multiplier"}, 1e-9, multiplier_max, 1.0);
    const rope_config &rope = config.rope;
    if (config.attention.kind != attention_kind::latent || rope.kind == rope_kind::plain ||
        rope.mscale_all == 0)
        return plain;
    const double mscale = yarn_mscale(rope.factor, rope.mscale_all);
    return plain * mscale * mscale;
}

bool layer_slides(const architecture &arch, uint32_t layer, uint32_t first_sliding) {
    switch (arch.window) {
        case window_rule::none:
            return false;
        case window_rule::all:
        case window_rule::when_used:
            return true;
        case window_rule::upper:
            return layer >= first_sliding;
        case window_rule::alternating:
            return layer % 2 == 0;
    }
    return false;
}

void read_window(config_reader &reader, const architecture &arch, model_config &config) {
    const bool by_flag = arch.window == window_rule::when_used || arch.window == window_rule::upper;
    const bool used = arch.window != window_rule::none &&
                      (!by_flag || reader.flag({"use_sliding_window"}, false));
    const uint32_t window = used ? reader.count({"sliding_window"}, 0, positions_limit, 0) : 0;
    const uint32_t first_sliding = reader.count({"max_window_layers"}, 0, UINT32_MAX, 28);

    std::vector<uint8_t> sliding(config.layers, 0);
    for (uint32_t layer = 0; layer < config.layers; ++layer)
        sliding[layer] = layer_slides(arch, layer, first_sliding);
    const std::vector<std::string> types = reader.texts({"layer_types"}, layers_max);
    if (!types.empty() && types.size() < config.layers)
        reader.fail("layer_types", format("has {} entries; one for each of the {} layers is needed",
                                          types.size(), config.layers));
    for (uint32_t layer = 0; layer < config.layers && layer < types.size(); ++layer) {
        sliding[layer] = types[layer] == "sliding_attention";
        if (!sliding[layer] && types[layer] != "full_attention")
            reader.fail("layer_types", format("holds {}; full_attention and sliding_attention are "
                                              "supported",
                                              printable(types[layer])));
        if (sliding[layer] && window == 0)
            reader.fail(
                "layer_types",
                format("says that layer {} slides, but no sliding_window is in use", layer));
    }
    if (arch.window == window_rule::alternating && window == 0 && types.empty())
        reader.fail("sliding_window", "is missing");
    // A window as long as every text hides nothing.
    if (window == 0 || window >= config.positions_max ||
        std::ranges::find(sliding, 1) == sliding.end())
        return;
    config.attention.window = window;
    config.attention.sliding = std::move(sliding);
}

void read_groups(config_reader &reader, const architecture &arch, model_config &config) {
    router_config &router = config.router;
    router.scale = reader.number({"routed_scaling_factor"}, 1e-9, multiplier_max);
    const bool sigmoid = arch.score == score_kind::sigmoid;
    const std::string method = reader.text({"topk_method"}, sigmoid ? "noaux_tc" : "greedy");
    if (sigmoid ? method != "noaux_tc" : method != "greedy" && method != "group_limited_greedy")
        reader.fail(
            "topk_method",
            format("is {}; {} supported for {}", printable(method),
                   sigmoid ? "noaux_tc is" : "greedy and group_limited_greedy are", arch.name));
    for (const char *key : {"n_group", "topk_group"})
        if (arch.names_groups && !reader.has({key}))
            reader.fail(key, format("is missing; give it, 1 where {} has no groups of experts",
                                    config.architecture));
    router.groups = reader.count({"n_group"}, 1, config.experts, 1);
    router.groups_chosen = reader.count({"topk_group"}, 1, router.groups, router.groups);
    if (config.experts % router.groups != 0)
        reader.fail("n_group", format("is {}; it has to divide the {} experts", router.groups,
                                      config.experts));
    const uint32_t group_experts = config.experts / router.groups;
    if (router.groups_chosen * group_experts < config.top_k)
        reader.fail("topk_group", format("is {}; {} experts of {} a group are to be chosen",
                                         router.groups_chosen, config.top_k, group_experts));
    if (method == "greedy" || router.groups == 1) {
        router.groups = router.groups_chosen = 1;
        return;
    }
    router.group = arch.group;
    if (arch.group == group_rule::best_two && group_experts < 2)
        reader.fail("n_group",
                    format("is {}; groups of at least two experts are needed", router.groups));
}

void read_router(config_reader &reader, const architecture &arch, model_config &config) {
    router_config &router = config.router;
    router.score = arch.score;
    router.bias = arch.router_bias;
    router.correction_bias = arch.correction_bias;
    router.normalise = arch.normalise == norm_weights_rule::always;
    if (arch.normalise == norm_weights_rule::by_key)
        router.normalise = reader.flag({"norm_topk_prob"}, arch.normalise_default);
    else if (arch.grouped_routing && reader.flag({"norm_topk_prob"}, false))
        // The published code normalises instead of scaling. Transformers never normalises.
        reader.fail("norm_topk_prob", format("is true; for {} only false is supported", arch.name));
    const char *score = arch.score == score_kind::sigmoid ? "sigmoid" : "softmax";
    if (const std::string scoring = reader.text({"scoring_func"}, score); scoring != score)
        reader.fail("scoring_func",
                    format("is {}; for {} {} is supported", printable(scoring), arch.name, score));
    if (arch.score == score_kind::sparsemixer) {
        router.jitter = reader.number({"router_jitter_noise"}, 0, 1, 0.01);
        if (config.top_k != 2)
            reader.fail("num_experts_per_tok",
                        format("is {}; sparsemixer chooses 2", config.top_k));
    }
    if (arch.grouped_routing) read_groups(reader, arch, config);
}

void read_shared(config_reader &reader, const architecture &arch, const json &root,
                 model_config &config) {
    if (arch.shared == shared_rule::sized) {
        config.shared_intermediate =
            reader.count({"shared_expert_intermediate_size"}, 0, intermediate_max);
        config.shared_gate = config.shared_intermediate != 0;
    }
    // null means that there is no shared expert. An absent key is an error, because tensors would
    // stay unread.
    if (arch.shared != shared_rule::counted) return;
    if (!root.contains("n_shared_experts")) reader.fail("n_shared_experts", "is missing");
    const uint32_t count = reader.count({"n_shared_experts"}, 0, 1024, 0);
    const uint64_t rows = uint64_t{count} * config.moe_intermediate;
    if (rows > intermediate_max)
        reader.fail("n_shared_experts", format("is {}; {} rows together are above the limit of {}",
                                               count, rows, intermediate_max));
    else
        config.shared_intermediate = static_cast<uint32_t>(rows);
}

void read_dense_layers(config_reader &reader, const architecture &arch, model_config &config) {
    config.moe.assign(config.layers, 1);
    if (arch.dense == dense_rule::stepped) {
        const uint32_t step = reader.count({"decoder_sparse_step"}, 1, layers_max, 1);
        for (uint32_t layer = 0; layer < config.layers; ++layer)
            config.moe[layer] = (layer + 1) % step == 0;
        for (const uint32_t layer : reader.counts({"mlp_only_layers"}, UINT32_MAX, layers_max))
            if (layer < config.layers) config.moe[layer] = 0;
    }
    if (arch.dense == dense_rule::first) {
        const uint32_t first = reader.count({"first_k_dense_replace"}, 0, layers_max);
        const uint32_t step = reader.count({"moe_layer_freq"}, 1, layers_max, 1);
        for (uint32_t layer = 0; layer < config.layers; ++layer)
            config.moe[layer] = layer >= first && layer % step == 0;
    }
    const std::vector<std::string> types = reader.texts({"mlp_layer_types"}, layers_max);
    for (uint32_t layer = 0; layer < config.layers && layer < types.size(); ++layer) {
        if (types[layer] != "sparse" && types[layer] != "dense")
            reader.fail("mlp_layer_types", format("holds {}; sparse and dense are supported",
                                                  printable(types[layer])));
        config.moe[layer] = types[layer] == "sparse";
    }
    if (std::ranges::find(config.moe, 1) == config.moe.end())
        reader.fail("num_hidden_layers", format("is {}, and no layer has experts", config.layers));
    if (std::ranges::find(config.moe, 0) != config.moe.end())
        config.dense_intermediate = reader.count({"intermediate_size"}, 1, intermediate_max);
}

void read_sizes(config_reader &reader, const architecture &arch, model_config &config) {
    config.layers = reader.count({"num_hidden_layers"}, 1, layers_max);
    config.mtp_layers = reader.count({"num_nextn_predict_layers"}, 0, layers_max, 0);
    config.hidden = reader.count({"hidden_size"}, 1, hidden_max);
    config.vocabulary = reader.count({"vocab_size"}, 1, vocabulary_max);
    config.positions_max = reader.count({"max_position_embeddings"}, 1, positions_limit);
    config.norm = arch.norm;
    config.norm_epsilon = reader.number({"rms_norm_eps", "layer_norm_eps"}, 0, 1);
    config.experts =
        reader.count({"num_local_experts", "num_experts", "n_routed_experts"}, 1, experts_max);
    config.top_k = reader.count({"num_experts_per_tok", "experts_per_token"}, 1, config.experts);
    config.moe_intermediate = reader.count({arch.expert_size_key}, 1, intermediate_max);
    config.expert_bias = arch.expert_bias;
    config.tied_embedding = reader.flag({"tie_word_embeddings"}, false);
    config.head_bias = reader.flag({"lm_head_bias"}, false);
    if (!arch.multipliers) return;
    config.embedding_multiplier =
        reader.number({"embedding_multiplier"}, 1e-9, multiplier_max, 1.0);
    config.residual_multiplier = reader.number({"residual_multiplier"}, 1e-9, multiplier_max, 1.0);
    config.logits_divisor = reader.number({"logits_scaling"}, 1e-9, multiplier_max, 1.0);
}

void read_attention(config_reader &reader, const architecture &arch, model_config &config) {
    config.attention.kind = arch.attention;
    config.attention.heads = reader.count({"num_attention_heads"}, 1, heads_max);
    if (reader.failed()) return;  // the code below divides by them
    if (arch.attention == attention_kind::latent)
        read_latent(reader, config);
    else
        read_grouped(reader, arch, config);
    if (reader.failed()) return;
    read_rope(reader, arch, config);
    config.attention.scale = scale_of(reader, arch, config);
    read_window(reader, arch, config);
}

}  // namespace

std::vector<uint32_t> model_config::moe_layers() const {
    std::vector<uint32_t> indices;
    for (uint32_t layer = 0; layer < layers; ++layer)
        if (moe[layer] != 0) indices.push_back(layer);
    return indices;
}

uint64_t model_config::kv_token_layer_bytes(uint32_t value_bytes) const {
    const uint64_t values =
        attention.kind == attention_kind::latent
            ? uint64_t{attention.kv_lora_rank} + rope.dimensions
            : uint64_t{attention.kv_heads} * (attention.head_dim + attention.value_dim);
    return values * value_bytes;
}

std::vector<std::string> known_architectures() {
    std::vector<std::string> names;
    for (const architecture &entry : architectures()) names.emplace_back(entry.name);
    return names;
}

result<model_config> parse_model_config(std::string_view text, const std::string &name) {
    const result<json> root = parse_object(text, name);
    if (!root) return root.failure();
    config_reader reader(*root, name);
    model_config config;
    config.architecture = reader.text({"model_type"}, "");
    const architecture *arch = find_architecture(config.architecture);
    if (arch == nullptr && !reader.failed()) {
        const std::vector<std::string> known = known_architectures();
        reader.fail("model_type",
                    format("is {}; supported are {}",
                           config.architecture.empty() ? "missing" : printable(config.architecture),
                           fmt::join(known, ", ")));
    }
    if (reader.failed()) return reader.failure();

    refuse_unsupported(reader);
    read_packing(reader, *arch, config);
    read_sizes(reader, *arch, config);
    if (reader.failed()) return reader.failure();
    read_activation(reader, *arch, config);
    read_attention(reader, *arch, config);
    if (reader.failed()) return reader.failure();
    read_dense_layers(reader, *arch, config);
    read_shared(reader, *arch, *root, config);
    read_router(reader, *arch, config);
    refuse_unused(reader, *arch, config);
    if (reader.failed()) return reader.failure();
    return config;
}

}  // namespace moorage::core

// gguf_config.cpp - a table of architectures and one of keys. Everything else comes from the
// tensors.
#include "core/model/gguf_config.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/gguf_reader.h"
#include "core/model/unread_keys.h"
#include "core/model/weight_values.h"

namespace moorage::core {

namespace {

constexpr gguf_architecture table[] = {
    {.name = "llama",
     .model = "mixtral",
     .rotates_neighbours = true,
     .has_window = true,
     .can_omit_head = true},
    {.name = "qwen2moe", .model = "qwen2_moe"},
    {.name = "qwen3moe", .model = "qwen3_moe", .normalises_weights = true, .can_omit_head = true},
    {.name = "olmoe", .model = "olmoe"},
    {.name = "deepseek2", .model = "deepseek_v2"},  // or deepseek_v3, if it scores by sigmoid
    {.name = "phimoe", .model = "phimoe", .has_window = true},
    {.name = "granitemoe",
     .model = "granitemoe",
     .rotates_neighbours = true,
     .can_omit_head = true},
    {.name = "gpt-oss", .model = "gpt_oss", .mlp_norm = "post_attention_norm", .has_window = true},
    {.name = "glm4moe",
     .model = "glm4_moe",
     .mlp_norm = "post_attention_norm",
     .can_omit_head = true},
};

enum gating : uint64_t {
    gating_unsaid = 0,
    gating_softmax = 1,
    gating_sigmoid = 2,
    gating_late = 3
};

const gguf_architecture *architecture_of(const gguf_files &files) {
    const auto name = gguf_text(files.metadata(), "general.architecture");
    const auto *found = std::ranges::find_if(
        table, [&](const gguf_architecture &entry) { return name && entry.name == *name; });
    return found == std::end(table) ? nullptr : found;
}

class config_builder {
public:
    config_builder(const gguf_files &files, const gguf_architecture &arch)
        : files_(files), arch_(arch), reader_(files, format("{}.", arch.name)) {}

    // Builds the keys of a config.json.
    result<json> build_json() {
        json config = json::object();
        config["model_type"] = model_type();
        read_sizes(config);
        read_attention(config);
        read_experts(config);
        read_router(config);
        read_rope(config);
        refuse_unread_keys(reader_, *find_architecture(model_type()));
        if (reader_.failed()) return reader_.failure();
        return config;
    }
    result<model_config> build() {
        const result<json> config = build_json();
        if (!config) return config.failure();
        result<model_config> parsed = parse_model_config(config->dump(), config_name());
        if (parsed && arch_.rotates_neighbours) parsed->rope.interleaved = true;
        return parsed;
    }

private:
    // The name in errors for config.json keys that were made from the file's keys.
    std::string config_name() const {
        return format("{}: in the words of config.json", files_.first_path());
    }

    void warn_missing(std::string_view key, std::string_view value, std::string_view reason) {
        log_warning(format("{}: {}.{} is missing{}{}; {} is taken, as llama.cpp does",
                           files_.first_path(), arch_.name, key, reason.empty() ? "" : " ", reason,
                           value));
    }
    // A key that every converter writes. A file without it may have lost it.
    double number_or(std::string_view key, double usual, std::string_view reason) {
        const auto value = reader_.number(key);
        if (!value && !reader_.failed()) warn_missing(key, format("{:g}", usual), reason);
        return value.value_or(usual);
    }
    uint64_t require_count(std::string_view key) {
        const auto value = reader_.count(key);
        if (!value) reader_.fail(key, "is missing");
        return value.value_or(0);
    }
    void put(json &config, const char *name, std::string_view key) {
        if (const auto value = reader_.number(key)) config[name] = *value;
    }
    void put_count(json &config, const char *name, std::string_view key) {
        if (const auto value = reader_.count(key)) config[name] = *value;
    }

    const gguf_tensor *tensor(const std::string &name) const { return files_.find(name); }
    // The tensor of the first layer that has it.
    const gguf_tensor *first_layer_tensor(std::string_view name) const {
        for (uint64_t layer = 0; layer < layers_; ++layer)
            if (const auto *found = tensor(format("blk.{}.{}", layer, name))) return found;
        return nullptr;
    }
    bool any_layer_has(std::string_view name) const { return first_layer_tensor(name) != nullptr; }

    std::string model_type() {
        const bool sigmoid = reader_.count("expert_gating_func") == gating_sigmoid;
        return arch_.model == std::string_view("deepseek_v2") && sigmoid ? "deepseek_v3"
                                                                         : arch_.model;
    }
    bool is_latent() const { return arch_.name == std::string_view("deepseek2"); }

    void read_sizes(json &config) {
        layers_ = require_count("block_count");
        const uint64_t mtp_layers = reader_.count("nextn_predict_layers").value_or(0);
        if (mtp_layers >= std::max<uint64_t>(layers_, 1))
            reader_.fail("nextn_predict_layers", format("is {} of {} layers", mtp_layers, layers_));
        else if (const std::string problem = files_.find_non_mtp_layer(layers_, mtp_layers);
                 !problem.empty())
            reader_.fail("nextn_predict_layers", format("is {}, but {}", mtp_layers, problem));
        // config.json has the real limits on layers. This one only keeps the loop finite.
        layers_ = std::min<uint64_t>(layers_ - std::min(mtp_layers, layers_), 1 << 16);
        config["num_hidden_layers"] = layers_;
        config["num_nextn_predict_layers"] = mtp_layers;
        const uint64_t hidden = require_count("embedding_length"),
                       output_width = reader_.count("embedding_length_out").value_or(0);
        config["hidden_size"] = hidden;
        if (output_width != 0 && output_width != hidden)
            reader_.fail("embedding_length_out",
                         format("is {}, and embedding_length {}; the same is supported",
                                output_width, hidden));
        config["max_position_embeddings"] = require_count("context_length");
        const gguf_tensor *embedding = tensor("token_embd.weight");
        if (embedding == nullptr || embedding->dimensions() > 2)
            reader_.fail("tensor token_embd.weight, of two dimensions, is missing");
        else
            config["vocab_size"] = embedding->extent(1);
        const auto epsilon = reader_.number("attention.layer_norm_rms_epsilon");
        const auto layer_norm_epsilon = reader_.number("attention.layer_norm_epsilon");
        if (!epsilon && !layer_norm_epsilon)
            reader_.fail("attention.layer_norm_rms_epsilon", "is missing");
        config["rms_norm_eps"] = epsilon ? *epsilon : layer_norm_epsilon.value_or(0);
        config["tie_word_embeddings"] = tensor("output.weight") == nullptr;
        config["lm_head_bias"] = tensor("output.bias") != nullptr;
        if (!find_architecture(model_type())->multipliers) return;
        put(config, "embedding_multiplier", "embedding_scale");
        put(config, "residual_multiplier", "residual_scale");
        put(config, "logits_scaling", "logit_scale");
        if (!config.contains("logits_scaling")) reader_.fail("logit_scale", "is missing");
    }

    void read_attention(json &config) {
        const uint64_t heads = require_count("attention.head_count");
        config["num_attention_heads"] = heads;
        rotated_ = reader_.count("rope.dimension_count").value_or(0);
        read_window(config);
        if (is_latent()) return read_latent(config);
        const uint64_t width = config["hidden_size"].get<uint64_t>();
        head_dim_ = reader_.count("attention.key_length").value_or(heads == 0 ? 0 : width / heads);
        const uint64_t values = reader_.count("attention.value_length").value_or(head_dim_);
        if (values != head_dim_)
            reader_.fail("attention.value_length",
                         format("is {}, and attention.key_length {}; the same is "
                                "supported",
                                values, head_dim_));
        config["head_dim"] = head_dim_;
        put_count(config, "num_key_value_heads", "attention.head_count_kv");
        const bool bias = any_layer_has("attn_q.bias") || any_layer_has("attn_qkv.bias");
        config["attention_bias"] = config["qkv_bias"] = bias;
        if (find_architecture(model_type())->norm_qk_key != nullptr)
            config["use_qk_norm"] = any_layer_has("attn_q_norm.weight");
        read_scale(config);
        if (reader_.number("attention.clamp_kqv").value_or(0) > 0)
            put(config, "clip_qkv", "attention.clamp_kqv");
    }
    // A window as long as every text hides nothing.
    void read_window(json &config) {
        const uint64_t window = reader_.count("attention.sliding_window").value_or(0);
        if (arch_.has_window && window != 0) {
            config["sliding_window"] = window;
            check_pattern();
        } else if (window != 0 && window < config["max_position_embeddings"].get<uint64_t>())
            reader_.fail("attention.sliding_window",
                         format("is {}; the architecture has no use for it", window));
    }
    // A flag for each layer, or a period n: every n-th layer does not slide. 0: all layers slide.
    void check_pattern() {
        constexpr const char *key = "attention.sliding_window_pattern";
        const bool alternates = find_architecture(model_type())->window == window_rule::alternating;
        const uint64_t usual = alternates ? 2 : 0;
        const std::string wanted =
            alternates ? "every second layer slides, from the first" : "all layers slide";
        const auto found = files_.metadata().find(format("{}.{}", arch_.name, key));
        const auto *list =
            found == files_.metadata().end() ? nullptr : std::get_if<gguf_numbers>(&found->second);
        if (list == nullptr) {
            if (const auto count = reader_.count(key); count && *count != usual)
                reader_.fail(key, format("is {}; {} is supported: {}", *count, usual, wanted));
            return;
        }
        for (uint64_t layer = 0; layer < std::min(list->count, layers_); ++layer)
            if ((list->at(layer) != 0) != (!alternates || layer % 2 == 0))
                return reader_.fail(key, format("says {} of layer {}; supported is that {}",
                                                list->at(layer), layer, wanted));
    }
    // 0 means the default.
    void read_scale(json &config) {
        if (head_dim_ == 0) return;
        const double usual = 1 / std::sqrt(static_cast<double>(head_dim_));
        const double stored_scale = reader_.number("attention.scale").value_or(0),
                     scale = stored_scale == 0 ? usual : stored_scale;
        if (find_architecture(model_type())->multipliers)
            config["attention_multiplier"] = scale;
        else if (std::abs(scale - usual) > 1e-6 * usual)
            reader_.fail("attention.scale",
                         format("is {:g}; {:g} is supported for {}", scale, usual, arch_.name));
    }

    // Files from before 2025-04 have kv_b as one matrix, and key_length is the size of a head. In
    // newer ones key_length is the size of the compressed cache.
    void read_latent(json &config) {
        const auto key = reader_.count("attention.key_length_mla"),
                   value = reader_.count("attention.value_length_mla");
        const uint64_t whole = key ? *key : require_count("attention.key_length");
        if (rotated_ == 0 || rotated_ >= whole)
            reader_.fail("rope.dimension_count",
                         format("is {} of heads of {}; a part is needed", rotated_, whole));
        config["qk_rope_head_dim"] = rotated_;
        config["qk_nope_head_dim"] = whole - std::min(rotated_, whole);
        config["v_head_dim"] = value ? *value : require_count("attention.value_length");
        config["kv_lora_rank"] = require_count("attention.kv_lora_rank");
        if (const gguf_tensor *query_a = first_layer_tensor("attn_q_a.weight"))
            config["q_lora_rank"] = query_a->shape.front();
    }

    void read_experts(json &config) {
        if (!reader_.count("expert_count").value_or(0) && !reader_.failed())
            reader_.fail("expert_count",
                         "is 0 or missing: a dense model, whose layers have no "
                         "experts; models with experts are supported");
        config["num_experts"] = require_count("expert_count");
        config["num_experts_per_tok"] = require_count("expert_used_count");
        const uint64_t inner = expert_rows();
        const auto stored_rows = reader_.count("expert_feed_forward_length");
        if (stored_rows && *stored_rows != 0 && inner != 0 && *stored_rows != inner)
            reader_.fail("expert_feed_forward_length",
                         format("is {}, but experts have {} rows", *stored_rows, inner));
        const auto *arch = find_architecture(model_type());
        const uint64_t dense_layers = arch->dense == dense_rule::first
                                          ? reader_.count("leading_dense_block_count").value_or(0)
                                          : 0;
        const uint64_t dense = dense_layers != 0 ? require_count("feed_forward_length")
                                                 : reader_.count("feed_forward_length").value_or(0);
        config["intermediate_size"] = dense;
        config[arch->expert_size_key] = inner;
        if (arch->dense == dense_rule::first) config["first_k_dense_replace"] = dense_layers;
        const gguf_tensor *shared = first_layer_tensor("ffn_up_shexp.weight");
        const uint64_t shared_rows = shared == nullptr ? 0 : shared->shape.front();
        if (arch->shared == shared_rule::none && shared != nullptr)
            reader_.fail(format("tensor {}: shared experts are not supported for {}", shared->name,
                                arch_.name));
        if (arch->shared == shared_rule::sized)
            config["shared_expert_intermediate_size"] = shared_rows;
        if (arch->shared == shared_rule::counted && inner != 0)
            config["n_shared_experts"] = shared_rows / inner;
    }
    // From the stacked matrix, or from the first expert if each has its own matrix.
    uint64_t expert_rows() {
        if (const auto *down = first_layer_tensor("ffn_down_exps.weight"))
            return down->shape.back();
        if (const auto *down = first_layer_tensor("ffn_down.0.weight")) return down->shape.back();
        reader_.fail("no layer has ffn_down_exps.weight, the experts of the layer");
        return 0;
    }

    void read_router(json &config) {
        const architecture &arch = *find_architecture(model_type());
        const uint64_t gating = reader_.count("expert_gating_func").value_or(gating_unsaid);
        const bool sigmoid = arch.score == score_kind::sigmoid;
        const bool late = arch.score == score_kind::softmax_of_chosen && gating == gating_late;
        const gguf_tensor *correction = first_layer_tensor("exp_probs_b.bias");
        if (correction == nullptr) correction = first_layer_tensor("exp_probs_b");
        if (gating == gating_unsaid && !sigmoid && correction != nullptr)
            reader_.fail(
                "expert_gating_func",
                format("is missing beside tensor {}, which corrects scores by 2 (sigmoid): add "
                       "the key, or convert the model anew",
                       correction->name));
        if (gating != gating_unsaid && !late &&
            gating != (sigmoid ? gating_sigmoid : gating_softmax))
            reader_.fail("expert_gating_func",
                         format("is {}; for {} {} is supported", gating, arch_.name,
                                sigmoid ? "2 (sigmoid)" : "1 (softmax)"));
        if (arch.normalise == norm_weights_rule::by_key || arch.grouped_routing)
            config["norm_topk_prob"] =
                reader_.flag("expert_weights_norm").value_or(arch_.normalises_weights);
        if (!arch.grouped_routing) return;
        const double scale = reader_.number("expert_weights_scale").value_or(0);
        config["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
        const uint64_t groups = reader_.count("expert_group_count").value_or(0);
        config["n_group"] = config["topk_group"] = 1;
        if (groups <= 1) return;
        config["n_group"] = groups;
        config["topk_group"] = require_count("expert_group_used_count");
        if (!sigmoid) config["topk_method"] = "group_limited_greedy";
    }

    void read_rope(json &config) {
        json rope = {{"rope_theta", number_or("rope.freq_base", 10000, "")},
                     {"rope_type", "default"}};
        // Adds 0.5, because the reader rounds the share down to a whole number again.
        if (!is_latent() && rotated_ != 0 && head_dim_ != 0)
            rope["partial_rotary_factor"] =
                rotated_ == head_dim_
                    ? 1.0
                    : (static_cast<double>(rotated_) + 0.5) / static_cast<double>(head_dim_);
        else if (!is_latent())
            rope["partial_rotary_factor"] = 1.0;
        if (const auto trained = reader_.count("rope.scaling.original_context_length"))
            rope["original_max_position_embeddings"] = *trained;
        read_scaling(rope);
        config["rope_parameters"] = rope;
    }
    // As in llama.cpp: linear if no type is given, and a factor of 0 does not scale.
    void read_scaling(json &rope) {
        const auto named = reader_.text("rope.scaling.type");
        const std::string type(named.value_or("linear"));
        // Every published model of this architecture scales its rotations.
        if (!named && arch_.name == std::string_view("gpt-oss"))
            warn_missing("rope.scaling.type", "linear", "");
        const double old_factor = reader_.number("rope.scale_linear").value_or(0),
                     stored_factor = reader_.number("rope.scaling.factor").value_or(old_factor),
                     factor = stored_factor == 0 || type == "none" ? 1 : stored_factor;
        const bool has_common_factors = tensor("rope_freqs.weight") != nullptr,
                   has_length_factors = tensor("rope_factors_long.weight") != nullptr;
        const double mix = reader_.number("rope.scaling.yarn_ext_factor").value_or(-1);
        if (mix >= 0 && mix != (type == "yarn" ? 1 : 0))
            reader_.fail("rope.scaling.yarn_ext_factor", format("is {:g}; with {} {} is supported",
                                                                mix, type, type == "yarn" ? 1 : 0));
        if (type == "yarn" && (has_common_factors || has_length_factors))
            reader_.fail("rope.scaling.type",
                         "is yarn, beside factors in tensors; one of both is supported");
        if (has_common_factors && has_length_factors)
            reader_.fail(
                "tensor rope_factors_long.weight is beside rope_freqs.weight; one of both is "
                "supported");
        if (has_common_factors)
            read_factors(rope, "rope_freqs.weight", "rope_freqs.weight", factor);
        else if (has_length_factors)
            read_factors(rope, "rope_factors_short.weight", "rope_factors_long.weight", factor);
        else if (type == "yarn")
            read_yarn(rope, factor);
        else if (type == "linear" && factor != 1)
            rope["rope_type"] = "linear", rope["factor"] = factor;
        else if (type != "linear" && type != "none")
            reader_.fail("rope.scaling.type",
                         format("is {}; none, linear, yarn and factors in tensors are supported",
                                printable(type)));
    }
    void read_yarn(json &rope, double factor) {
        if (!reader_.number("rope.scaling.factor") && !reader_.number("rope.scale_linear"))
            reader_.fail("rope.scaling.factor",
                         "is missing beside rope.scaling.type, which is yarn");
        if (!reader_.count("rope.scaling.original_context_length"))
            warn_missing("rope.scaling.original_context_length", "the context length",
                         "beside yarn");
        rope["rope_type"] = "yarn";
        rope["factor"] = factor;
        if (const auto fast = reader_.number("rope.scaling.yarn_beta_fast"))
            rope["beta_fast"] = *fast;
        if (const auto slow = reader_.number("rope.scaling.yarn_beta_slow"))
            rope["beta_slow"] = *slow;
        // gpt-oss' published bounds are not rounded, but llama.cpp rounds them.
        if (arch_.name == std::string_view("gpt-oss")) rope["truncate"] = false;
        if (is_latent()) {
            // Cosines are not scaled; the scores are scaled instead.
            rope["attention_factor"] = 1.0;
            rope["mscale"] = rope["mscale_all_dim"] =
                number_or("rope.scaling.yarn_log_multiplier", 0, "beside yarn") / 0.1;
            return;
        }
        const double usual = factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
        if (const auto attention_factor = reader_.number("rope.scaling.attn_factor"))
            rope["attention_factor"] = *attention_factor * usual;
    }
    // Each pair's frequency is divided by its own number and by the common factor.
    void read_factors(json &rope, const char *short_name, const char *long_name, double factor) {
        const auto list = [&](const char *name) {
            std::vector<float> values;
            const gguf_tensor *found = tensor(name);
            if (found == nullptr || found->dimensions() != 1 || found->extent(0) > (1 << 16)) {
                reader_.fail(format(
                    "tensor {}, a vector of a number for each rotated pair, is missing", name));
                return values;
            }
            if (!found->other_type.empty()) {
                reader_.fail(format("tensor {} is of type {}; supported are {}", name,
                                    found->other_type, supported_gguf_types()));
                return values;
            }
            values.resize(found->extent(0));
            read_row(packed_matrix(found->type, 1, static_cast<uint32_t>(values.size()),
                                   found->bytes.data()),
                     0, values);
            for (float &value : values) value *= static_cast<float>(factor);
            return values;
        };
        rope["rope_type"] = "longrope";
        rope["short_factor"] = list(short_name);
        rope["long_factor"] = list(long_name);
        rope["attention_factor"] = reader_.number("rope.scaling.attn_factor").value_or(1);
    }

    const gguf_files &files_;
    const gguf_architecture &arch_;
    gguf_reader reader_;
    uint64_t layers_ = 0, head_dim_ = 0, rotated_ = 0;
};

}  // namespace

namespace {

error unknown_architecture(const gguf_files &files) {
    const auto name = gguf_text(files.metadata(), "general.architecture");
    const bool dense =
        name && !gguf_count(files.metadata(), format("{}.expert_count", *name)).value_or(0);
    return error{format("{}: general.architecture is {}{}; supported are {}", files.first_path(),
                        name ? printable(*name) : "missing",
                        dense ? ", a dense model, whose layers have no experts" : "",
                        fmt::join(known_gguf_architectures(), ", "))};
}

}  // namespace

result<model_config> read_gguf_config(const gguf_files &files) {
    const gguf_architecture *arch = architecture_of(files);
    if (arch == nullptr) return unknown_architecture(files);
    return config_builder(files, *arch).build();
}

result<json> gguf_config_json(const gguf_files &files) {
    const gguf_architecture *arch = architecture_of(files);
    if (arch == nullptr) return unknown_architecture(files);
    return config_builder(files, *arch).build_json();
}

const gguf_architecture &gguf_architecture_of(std::string_view model) {
    const std::string_view table_model = model == "deepseek_v3" ? "deepseek_v2" : model;
    const auto *found = std::ranges::find_if(
        table, [&](const gguf_architecture &entry) { return table_model == entry.model; });
    assert(found != std::end(table));
    return *found;
}

std::vector<std::string> known_gguf_architectures() {
    std::vector<std::string> names;
    for (const gguf_architecture &entry : table) names.emplace_back(entry.name);
    return names;
}

const char *gguf_mlp_norm(const gguf_files &files) {
    const gguf_architecture *arch = architecture_of(files);
    return arch == nullptr ? "ffn_norm" : arch->mlp_norm;
}

}  // namespace moorage::core

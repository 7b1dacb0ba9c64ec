// binding.h - goes through a model's tensors: the names and shapes that an architecture has.
//
// A supply provides the tensors, from a directory or from memory filled at random. It keeps its
// first failure. After a failure the walk ends early, and the weights must not be used.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/model.h"
#include "core/model/named_parts.h"
#include "core/model/segment.h"
#include "core/model/weights.h"

namespace moorage::core {

// The part of a model that a tensor's bytes are counted for (model_sizes).
enum class model_part : uint8_t { experts, shared, attention, dense, router, embedding, head };
inline constexpr size_t model_part_count = 7;

template <class Supply>
concept tensor_supply = requires(Supply supply, const std::string &name, model_part part,
                                 std::vector<mlp_weights> &experts, attention_weights &attention) {
    { supply.read_matrix(name, 1u, 1u, part) } -> std::same_as<matrix>;
    { supply.read_vector(name, 1u, part) } -> std::same_as<std::span<const float>>;
    // Reads the experts of the layer whose tensor names begin with `name`.
    { supply.read_experts(name, experts) } -> std::same_as<void>;
    // Reads kv_b, or its halves, of the attention whose tensor names begin with `name`.
    { supply.read_latent(name, attention) } -> std::same_as<void>;
    { supply.failed() } -> std::same_as<bool>;
};

// Passes on the tensors of a supply and notes them by name.
template <class Supply>
class noted_supply {
public:
    // `parts`: where to note them, or null.
    noted_supply(Supply &supply, std::vector<named_part> *parts) : supply_(supply), parts_(parts) {}

    matrix read_matrix(const std::string &name, uint32_t rows, uint32_t columns, model_part part) {
        const matrix read = supply_.read_matrix(name, rows, columns, part);
        if (parts_ != nullptr) parts_->push_back({.name = name, .weights = read});
        return read;
    }
    std::span<const float> read_vector(const std::string &name, uint32_t count, model_part part) {
        const std::span<const float> read = supply_.read_vector(name, count, part);
        if (parts_ != nullptr) parts_->push_back({.name = name, .values = read});
        return read;
    }
    void read_experts(const std::string &layer, std::vector<mlp_weights> &experts) {
        supply_.read_experts(layer, experts);
        if (parts_ != nullptr) parts_->push_back({.name = layer, .kind = part_kind::experts});
    }
    void read_latent(const std::string &prefix, attention_weights &attention) {
        supply_.read_latent(prefix, attention);
        if (parts_ != nullptr) parts_->push_back({.name = prefix, .kind = part_kind::latent});
    }
    bool failed() const { return supply_.failed(); }

private:
    Supply &supply_;
    std::vector<named_part> *parts_;
};

template <tensor_supply Supply>
class weight_binding {
public:
    // `parts`: where to note the parts, or null.
    weight_binding(const model_config &config, const architecture &arch, Supply &supply,
                   std::vector<named_part> *parts = nullptr)
        : config_(config), arch_(arch), supply_(supply, parts) {}

    model_weights bind() {
        model_weights weights;
        weights.embedding = supply_.read_matrix("model.embed_tokens.weight", config_.vocabulary,
                                                config_.hidden, model_part::embedding);
        weights.final_norm = norm("model.norm", config_.hidden);
        weights.head = config_.tied_embedding
                           ? weights.embedding
                           : supply_.read_matrix("lm_head.weight", config_.vocabulary,
                                                 config_.hidden, model_part::head);
        if (config_.head_bias)
            weights.head_bias =
                supply_.read_vector("lm_head.bias", config_.vocabulary, model_part::head);
        for (uint32_t layer = 0; layer < config_.layers && !supply_.failed(); ++layer)
            weights.layers.push_back(bind_layer(layer));
        return weights;
    }

private:
    static constexpr model_part attention_part = model_part::attention;

    layer_weights bind_layer(uint32_t number) {
        const std::string prefix = format("model.layers.{}.", number);
        layer_weights layer;
        layer.attention_norm = norm(prefix + "input_layernorm", config_.hidden);
        layer.mlp_norm = norm(prefix + "post_attention_layernorm", config_.hidden);
        if (config_.attention.kind == attention_kind::latent)
            bind_latent(prefix + "self_attn.", layer.attention);
        else
            bind_grouped(prefix + "self_attn.", layer.attention);
        if (config_.moe[number] == 0)
            layer.dense = mlp(prefix + "mlp.", config_.dense_intermediate, model_part::dense);
        else
            bind_moe(prefix, layer);
        return layer;
    }

    void bind_moe(const std::string &prefix, layer_weights &layer) {
        const std::string router = prefix + arch_.tensors.router;
        const uint32_t experts = config_.experts;
        layer.router =
            supply_.read_matrix(router + ".weight", experts, config_.hidden, model_part::router);
        if (config_.router.bias)
            layer.router_bias = supply_.read_vector(router + ".bias", experts, model_part::router);
        if (config_.router.correction_bias)
            layer.correction_bias =
                supply_.read_vector(prefix + arch_.tensors.correction, experts, model_part::router);
        if (config_.shared_intermediate != 0)
            layer.shared = mlp(prefix + arch_.tensors.shared + ".", config_.shared_intermediate,
                               model_part::shared);
        if (config_.shared_gate)
            layer.shared_gate = supply_.read_matrix(prefix + arch_.tensors.shared + "_gate.weight",
                                                    1, config_.hidden, model_part::shared);
        supply_.read_experts(prefix, layer.experts);
    }

    void bind_grouped(const std::string &prefix, attention_weights &weights) {
        const attention_config &attention = config_.attention;
        const uint32_t queries = attention.heads * attention.head_dim,
                       keys = attention.kv_heads * attention.head_dim,
                       values = attention.kv_heads * attention.value_dim;
        weights.query = weight(prefix + "q_proj", queries, config_.hidden);
        weights.key = weight(prefix + "k_proj", keys, config_.hidden);
        weights.value = weight(prefix + "v_proj", values, config_.hidden);
        weights.output =
            weight(prefix + "o_proj", config_.hidden, attention.heads * attention.value_dim);
        if (attention.qkv_bias) {
            weights.query_bias =
                supply_.read_vector(prefix + "q_proj.bias", queries, attention_part);
            weights.key_bias = supply_.read_vector(prefix + "k_proj.bias", keys, attention_part);
            weights.value_bias =
                supply_.read_vector(prefix + "v_proj.bias", values, attention_part);
        }
        if (attention.output_bias)
            weights.output_bias =
                supply_.read_vector(prefix + "o_proj.bias", config_.hidden, attention_part);
        if (attention.norm != query_key_norm::none) {
            const bool whole = attention.norm == query_key_norm::whole;
            weights.query_norm = supply_.read_vector(
                prefix + "q_norm.weight", whole ? queries : attention.head_dim, attention_part);
            weights.key_norm = supply_.read_vector(
                prefix + "k_norm.weight", whole ? keys : attention.head_dim, attention_part);
        }
        if (attention.sinks)
            weights.sinks = supply_.read_vector(prefix + "sinks", attention.heads, attention_part);
    }

    void bind_latent(const std::string &prefix, attention_weights &weights) {
        const attention_config &attention = config_.attention;
        const uint32_t queries = attention.heads * attention.head_dim;
        if (attention.query_lora_rank == 0) {
            weights.query = weight(prefix + "q_proj", queries, config_.hidden);
        } else {
            weights.query_a =
                weight(prefix + "q_a_proj", attention.query_lora_rank, config_.hidden);
            weights.query_a_norm = supply_.read_vector(prefix + "q_a_layernorm.weight",
                                                       attention.query_lora_rank, attention_part);
            weights.query_b = weight(prefix + "q_b_proj", queries, attention.query_lora_rank);
        }
        weights.kv_a = weight(prefix + "kv_a_proj_with_mqa",
                              attention.kv_lora_rank + config_.rope.dimensions, config_.hidden);
        weights.kv_a_norm = supply_.read_vector(prefix + "kv_a_layernorm.weight",
                                                attention.kv_lora_rank, attention_part);
        supply_.read_latent(prefix, weights);
        weights.output =
            weight(prefix + "o_proj", config_.hidden, attention.heads * attention.value_dim);
    }

    matrix weight(const std::string &name, uint32_t rows, uint32_t columns) {
        return supply_.read_matrix(name + ".weight", rows, columns, attention_part);
    }

    mlp_weights mlp(const std::string &prefix, uint32_t intermediate, model_part part) {
        mlp_weights weights;
        weights.gate =
            supply_.read_matrix(prefix + "gate_proj.weight", intermediate, config_.hidden, part);
        weights.up =
            supply_.read_matrix(prefix + "up_proj.weight", intermediate, config_.hidden, part);
        weights.down =
            supply_.read_matrix(prefix + "down_proj.weight", config_.hidden, intermediate, part);
        return weights;
    }

    norm_weights norm(const std::string &name, uint32_t count) {
        norm_weights weights;
        weights.weight = supply_.read_vector(name + ".weight", count, attention_part);
        if (config_.norm == norm_kind::layer)
            weights.bias = supply_.read_vector(name + ".bias", count, attention_part);
        return weights;
    }

    const model_config &config_;
    const architecture &arch_;
    noted_supply<Supply> supply_;
};

// The unit of parts that fits all experts (weights.h).
inline uint32_t part_unit_of(const model_config &config, const model_weights &weights) {
    uint32_t unit = usual_part_unit;
    for (const uint32_t layer : config.moe_layers())
        for (const mlp_weights &expert : weights.layers[layer].experts) {
            // Several rows of gate and up share scales, so a part must hold all of them.
            for (const matrix *projection : {&expert.gate, &expert.up})
                unit = std::max(unit, format_of(projection->type).scale_rows);
            unit = std::max(unit, part_unit_of(expert.down));
        }
    return unit;
}

// Bytes of each part, as counted by the supply.
template <class Supply>
model_sizes sizes_of(const model_config &config, const model_weights &weights,
                     const Supply &supply) {
    model_sizes sizes;
    // Layers may have different formats; the largest expert counts.
    for (const uint32_t layer : config.moe_layers())
        for (const mlp_weights &expert : weights.layers[layer].experts)
            sizes.expert_bytes = std::max(
                sizes.expert_bytes, segment_image(expert, 0, config.moe_intermediate).bytes());
    sizes.experts_bytes = supply.bytes(model_part::experts);
    sizes.shared_bytes = supply.bytes(model_part::shared);
    sizes.attention_bytes = supply.bytes(model_part::attention);
    sizes.dense_bytes = supply.bytes(model_part::dense);
    sizes.router_bytes = supply.bytes(model_part::router);
    sizes.embedding_bytes = supply.bytes(model_part::embedding);
    sizes.head_bytes = supply.bytes(model_part::head);
    return sizes;
}

}  // namespace moorage::core

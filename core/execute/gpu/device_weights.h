// device_weights.h - the weights of a model that stay on the GPU: everything but routed experts.
//
// Memory is laid out twice in the same order. The first time has no base and only counts. The
// second time uses one allocation and copies the weights. So a refusal for lack of memory counts
// exactly what would have been allocated.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "core/model/model.h"
#include "core/model/segment.h"

namespace moorage::core::gpu {

// Takes ranges of one allocation, one after the other. Without a base it only counts.
class memory_plan {
public:
    memory_plan() = default;
    explicit memory_plan(std::byte *base) : base_(base) {}
    bool counting() const { return base_ == nullptr; }
    uint64_t bytes() const { return used_; }

    template <class Value>
    Value *take(uint64_t count) {
        const uint64_t offset = used_;
        used_ += (count * sizeof(Value) + 255) / 256 * 256;
        return base_ ? reinterpret_cast<Value *>(base_ + offset) : nullptr;
    }

private:
    std::byte *base_ = nullptr;
    uint64_t used_ = 0;
};

struct device_norm {
    const float *weight = nullptr, *bias = nullptr;
};
struct device_mlp {
    matrix gate, up, down;
    const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
};
struct device_layer {
    device_norm attention_norm, mlp_norm;
    matrix query, key, value, output, query_a, query_b, kv_a, kv_b, key_up, value_up;
    const float *query_bias = nullptr, *key_bias = nullptr, *value_bias = nullptr,
                *output_bias = nullptr;
    const float *query_norm = nullptr, *key_norm = nullptr;
    const float *query_a_norm = nullptr, *kv_a_norm = nullptr, *sinks = nullptr;
    device_mlp dense, shared;
    matrix shared_gate, router;
    const float *router_bias = nullptr;
    // The parts of experts that are in no image: biases and, for matrices without values, orders of
    // columns.
    std::vector<device_mlp> experts;
};
struct device_weights {
    matrix embedding, head;
    const float *head_bias = nullptr;
    device_norm final_norm;
    std::vector<device_layer> layers;
};

// Copies to the GPU while it lays out. Device: upload(target, source, bytes).
template <class Device>
class weights_loader {
public:
    weights_loader(Device &device, memory_plan &plan) : device_(device), plan_(plan) {}

    device_weights load(const model_weights &source) {
        device_weights weights;
        weights.embedding = load(source.embedding);
        weights.head = load(source.head);
        weights.head_bias = load(source.head_bias);
        weights.final_norm = load(source.final_norm);
        for (const layer_weights &layer : source.layers) weights.layers.push_back(load(layer));
        return weights;
    }

    // The weights of a device that computes experts alone.
    device_weights load_experts(const model_weights &source) {
        device_weights weights;
        weights.layers.resize(source.layers.size());
        for (size_t i = 0; i < source.layers.size(); ++i)
            load_experts(source.layers[i], weights.layers[i]);
        return weights;
    }

private:
    void load_experts(const layer_weights &source, device_layer &layer) {
        const auto has_extras = [](const mlp_weights &expert) {
            return !expert.gate_bias.empty() || !expert.up_bias.empty() ||
                   !expert.down_bias.empty() || expert.gate.group_of || expert.up.group_of ||
                   expert.down.group_of;
        };
        if (std::ranges::none_of(source.experts, has_extras)) return;
        for (const mlp_weights &expert : source.experts) {
            device_mlp target;
            target.gate.group_of = load_order(expert.gate);
            target.up.group_of = load_order(expert.up);
            target.down.group_of = load_order(expert.down);
            target.gate_bias = load(expert.gate_bias), target.up_bias = load(expert.up_bias);
            target.down_bias = load(expert.down_bias);
            layer.experts.push_back(target);
        }
    }
    device_layer load(const layer_weights &source) {
        const attention_weights &attention = source.attention;
        device_layer layer;
        layer.attention_norm = load(source.attention_norm);
        layer.mlp_norm = load(source.mlp_norm);
        layer.query = load(attention.query), layer.key = load(attention.key),
        layer.value = load(attention.value);
        layer.output = load(attention.output);
        layer.query_a = load(attention.query_a), layer.query_b = load(attention.query_b);
        layer.kv_a = load(attention.kv_a), layer.kv_b = load(attention.kv_b);
        layer.key_up = load(attention.key_up), layer.value_up = load(attention.value_up);
        layer.query_bias = load(attention.query_bias), layer.key_bias = load(attention.key_bias);
        layer.value_bias = load(attention.value_bias),
        layer.output_bias = load(attention.output_bias);
        layer.query_norm = load(attention.query_norm), layer.key_norm = load(attention.key_norm);
        layer.query_a_norm = load(attention.query_a_norm),
        layer.kv_a_norm = load(attention.kv_a_norm);
        layer.sinks = load(attention.sinks);
        layer.dense = load(source.dense);
        layer.shared = load(source.shared);
        layer.shared_gate = load(source.shared_gate);
        layer.router = load(source.router);
        layer.router_bias = load(source.router_bias);
        load_experts(source, layer);
        return layer;
    }
    device_mlp load(const mlp_weights &source) {
        return {load(source.gate),      load(source.up),      load(source.down),
                load(source.gate_bias), load(source.up_bias), load(source.down_bias)};
    }
    device_norm load(const norm_weights &source) {
        return {load(source.weight), load(source.bias)};
    }

    const float *load(std::span<const float> source) {
        if (source.empty()) return nullptr;
        float *target = plan_.template take<float>(source.size());
        if (!plan_.counting()) device_.upload(target, source.data(), source.size_bytes());
        return target;
    }

    // A matrix in its own type, its rows without gaps. A matrix that is named twice is stored once.
    matrix load(const matrix &source) {
        if (!source) return {};
        const auto found = loaded_.find(source.data);
        if (found != loaded_.end() && found->second.rows == source.rows) return found->second;
        matrix target = source;
        target.row_bytes = bytes_of_columns(source.type, source.columns);
        target.data = load_rows(source.data, source.row_bytes, target.row_bytes, source.rows);
        if (source.scales) {
            target.scale_row_bytes = scale_bytes_of(source);
            target.scales = load_rows(source.scales, source.scale_row_bytes, target.scale_row_bytes,
                                      scale_rows_of(source));
        }
        target.group_of = load_order(source);
        loaded_[source.data] = target;
        return target;
    }
    // Several matrices of one input often share it.
    const uint32_t *load_order(const matrix &source) {
        if (!source.group_of) return nullptr;
        const auto [entry, is_new] = orders_.try_emplace(source.group_of, nullptr);
        if (!is_new) return entry->second;
        uint32_t *target = plan_.template take<uint32_t>(source.columns);
        if (!plan_.counting())
            device_.upload(target, source.group_of, source.columns * sizeof(uint32_t));
        return entry->second = target;
    }
    const std::byte *load_rows(const std::byte *source, uint64_t stride_bytes, uint64_t row_bytes,
                               uint64_t rows) {
        std::byte *target = plan_.template take<std::byte>(rows * row_bytes);
        if (plan_.counting()) return nullptr;
        if (stride_bytes == row_bytes) {
            device_.upload(target, source, rows * row_bytes);
            return target;
        }
        std::vector<std::byte> packed(rows * row_bytes);
        for (uint64_t row = 0; row < rows; ++row)
            std::memcpy(packed.data() + row * row_bytes, source + row * stride_bytes, row_bytes);
        device_.upload(target, packed.data(), packed.size());
        return target;
    }

    Device &device_;
    memory_plan &plan_;
    std::map<const std::byte *, matrix> loaded_;
    std::map<const uint32_t *, const uint32_t *> orders_;
};

}  // namespace moorage::core::gpu

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
        const uint64_t at = used_;
        used_ += (count * sizeof(Value) + 255) / 256 * 256;
        return base_ ? reinterpret_cast<Value *>(base_ + at) : nullptr;
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

    device_weights load(const model_weights &from) {
        device_weights out;
        out.embedding = load(from.embedding);
        out.head = load(from.head);
        out.head_bias = load(from.head_bias);
        out.final_norm = load(from.final_norm);
        for (const layer_weights &layer : from.layers) out.layers.push_back(load(layer));
        return out;
    }

    // The weights of a device that computes experts alone.
    device_weights load_experts(const model_weights &from) {
        device_weights out;
        out.layers.resize(from.layers.size());
        for (size_t i = 0; i < from.layers.size(); ++i) load_experts(from.layers[i], out.layers[i]);
        return out;
    }

private:
    void load_experts(const layer_weights &from, device_layer &out) {
        const auto beside = [](const mlp_weights &one) {
            return !one.gate_bias.empty() || !one.up_bias.empty() || !one.down_bias.empty() ||
                   one.gate.group_of || one.up.group_of || one.down.group_of;
        };
        if (std::ranges::none_of(from.experts, beside)) return;
        for (const mlp_weights &expert : from.experts) {
            device_mlp made;
            made.gate.group_of = load_order(expert.gate);
            made.up.group_of = load_order(expert.up);
            made.down.group_of = load_order(expert.down);
            made.gate_bias = load(expert.gate_bias), made.up_bias = load(expert.up_bias);
            made.down_bias = load(expert.down_bias);
            out.experts.push_back(made);
        }
    }
    device_layer load(const layer_weights &from) {
        const attention_weights &a = from.attention;
        device_layer out;
        out.attention_norm = load(from.attention_norm);
        out.mlp_norm = load(from.mlp_norm);
        out.query = load(a.query), out.key = load(a.key), out.value = load(a.value);
        out.output = load(a.output);
        out.query_a = load(a.query_a), out.query_b = load(a.query_b);
        out.kv_a = load(a.kv_a), out.kv_b = load(a.kv_b);
        out.key_up = load(a.key_up), out.value_up = load(a.value_up);
        out.query_bias = load(a.query_bias), out.key_bias = load(a.key_bias);
        out.value_bias = load(a.value_bias), out.output_bias = load(a.output_bias);
        out.query_norm = load(a.query_norm), out.key_norm = load(a.key_norm);
        out.query_a_norm = load(a.query_a_norm), out.kv_a_norm = load(a.kv_a_norm);
        out.sinks = load(a.sinks);
        out.dense = load(from.dense);
        out.shared = load(from.shared);
        out.shared_gate = load(from.shared_gate);
        out.router = load(from.router);
        out.router_bias = load(from.router_bias);
        load_experts(from, out);
        return out;
    }
    device_mlp load(const mlp_weights &from) {
        return {load(from.gate),      load(from.up),      load(from.down),
                load(from.gate_bias), load(from.up_bias), load(from.down_bias)};
    }
    device_norm load(const norm_weights &from) { return {load(from.weight), load(from.bias)}; }

    const float *load(std::span<const float> from) {
        if (from.empty()) return nullptr;
        float *out = plan_.template take<float>(from.size());
        if (!plan_.counting()) device_.upload(out, from.data(), from.size_bytes());
        return out;
    }

    // A matrix in its own type, its rows without gaps. A matrix that is named twice is stored once.
    matrix load(const matrix &from) {
        if (!from) return {};
        const auto found = loaded_.find(from.data);
        if (found != loaded_.end() && found->second.rows == from.rows) return found->second;
        matrix out = from;
        out.row_bytes = bytes_of_columns(from.type, from.columns);
        out.data = load_rows(from.data, from.row_bytes, out.row_bytes, from.rows);
        if (from.scales) {
            out.scale_row_bytes = scale_bytes_of(from);
            out.scales = load_rows(from.scales, from.scale_row_bytes, out.scale_row_bytes,
                                   scale_rows_of(from));
        }
        out.group_of = load_order(from);
        loaded_[from.data] = out;
        return out;
    }
    // Several matrices of one input often share it.
    const uint32_t *load_order(const matrix &from) {
        if (!from.group_of) return nullptr;
        const auto [at, is_new] = orders_.try_emplace(from.group_of, nullptr);
        if (!is_new) return at->second;
        uint32_t *out = plan_.template take<uint32_t>(from.columns);
        if (!plan_.counting()) device_.upload(out, from.group_of, from.columns * sizeof(uint32_t));
        return at->second = out;
    }
    const std::byte *load_rows(const std::byte *from, uint64_t stride_bytes, uint64_t row_bytes,
                               uint64_t rows) {
        std::byte *out = plan_.template take<std::byte>(rows * row_bytes);
        if (plan_.counting()) return nullptr;
        if (stride_bytes == row_bytes) {
            device_.upload(out, from, rows * row_bytes);
            return out;
        }
        std::vector<std::byte> packed(rows * row_bytes);
        for (uint64_t row = 0; row < rows; ++row)
            std::memcpy(packed.data() + row * row_bytes, from + row * stride_bytes, row_bytes);
        device_.upload(out, packed.data(), packed.size());
        return out;
    }

    Device &device_;
    memory_plan &plan_;
    std::map<const std::byte *, matrix> loaded_;
    std::map<const uint32_t *, const uint32_t *> orders_;
};

}  // namespace moorage::core::gpu

// forward_buffers.h - the working memory of a pass's arithmetic: caches, activations, tables.
#pragma once

#include <algorithm>

#include "core/execute/gpu/arithmetic/attend.h"
#include "core/execute/gpu/arithmetic/product.h"
#include "core/execute/gpu/device_weights.h"

namespace moorage::core::gpu {

struct forward_limits {
    uint32_t tokens_max = 1;  // of a pass
    uint32_t streams = 1, context_max = 1;
    uint32_t outputs_max = 1;
    bool predict = false;
    // true: caches in float and inputs of matrix units in 24 bits, for comparison with references.
    // false: half precision and 16 bits.
    bool exact = false;
    uint64_t workspace_bytes = 0;  // workspace of the device's library of products
    uint32_t cache_bytes() const { return exact ? 4 : 2; }
};

constexpr uint32_t few_tokens = 8;   // up to here weights are streamed; beyond it matrix units work
constexpr uint32_t splits_max = 64;  // splits of a context, times tokens

// Everything is in device memory but pinned_*. That is host memory from and to which copies run.
// The GPU can also write it.
struct forward_buffers {
    uint32_t pairs = 0;
    // [layers] caches: keys and values, or the compressed vectors alone.
    std::vector<std::byte *> keys, values;
    // ids, streams, positions, output rows [tokens], tiles [tokens, 2], cosines, sines [tokens,
    // pairs]: in this order, without gaps for the tokens of the pass.
    uint32_t *pass = nullptr, *pinned_pass = nullptr;
    // places, gather, weights [tokens * k]
    uint32_t *route = nullptr, *pinned_route = nullptr;
    product_item *items = nullptr, *pinned_items = nullptr;  // [items_max]
    uint32_t items_max = 0;

    float *state = nullptr, *normed = nullptr, *moe_input = nullptr;  // [tokens, hidden]
    // As state, moe_input and shared_output, but for a prediction; and the places of its route.
    float *ahead = nullptr, *ahead_input = nullptr, *ahead_shared = nullptr;
    uint32_t *ahead_places = nullptr, *pinned_ahead_places = nullptr;
    float *query = nullptr, *key = nullptr, *value = nullptr;            // projections
    float *query_a = nullptr, *compressed = nullptr, *latent = nullptr;  // latent attention
    float *attended = nullptr, *head_values = nullptr;
    float *partial = nullptr, *partial_values = nullptr;
    float *router = nullptr, *next_router = nullptr;    // [tokens, experts]
    float *inner = nullptr, *expert_outputs = nullptr;  // [assignments, ..]
    float *shared_inner = nullptr, *shared_output = nullptr, *shared_gate = nullptr;
    float *logits = nullptr;                   // [outputs, vocabulary]
    uint16_t *high = nullptr, *low = nullptr;  // [tokens, widest]
    std::byte *workspace = nullptr;
    // Inputs and outputs of the experts on the CPU: [tokens, hidden], [assignments, hidden].
    float *pinned_inputs = nullptr, *pinned_outputs = nullptr;
    // The router's scores twice [2, tokens, experts], for layers in turn. The host reads those of
    // one layer while the GPU computes the next.
    float *pinned_router = nullptr, *pinned_next_router = nullptr, *pinned_logits = nullptr;
    // How often scores have been told (tell_kernel): as the GPU counts, and as the host is told.
    uint32_t *told = nullptr, *pinned_told = nullptr;

    uint32_t tokens = 0;  // tokens of the pass, for which its block is packed
    uint64_t pass_bytes() const { return (6 + 2ull * pairs) * tokens * 4; }
    const uint32_t *ids() const { return pass; }
    const uint32_t *streams() const { return pass + tokens; }
    const uint32_t *positions() const { return pass + 2ull * tokens; }
    const uint32_t *output_rows() const { return pass + 3ull * tokens; }
    const attend_tile *tiles() const {
        return reinterpret_cast<const attend_tile *>(pass + 4ull * tokens);
    }
    const float *cosines() const { return reinterpret_cast<const float *>(pass + 6ull * tokens); }
    const float *sines() const { return cosines() + uint64_t{pairs} * tokens; }
};

// Shared memory of an attention block with so many (token, head) pairs.
inline uint32_t attend_shared_bytes(const model_config &config, const forward_limits &limits,
                                    uint32_t rows) {
    const attention_config &a = config.attention;
    attend_shape shape{};
    shape.values_in_keys = a.kind == attention_kind::latent;
    shape.head_dim = shape.values_in_keys ? a.kv_lora_rank + config.rope.dimensions : a.head_dim;
    shape.value_dim = shape.values_in_keys ? a.kv_lora_rank : a.value_dim;
    if (rows == 4)
        return limits.exact ? attend_kernel<float, 4, 1>::shared_bytes_of(shape)
                            : attend_kernel<uint16_t, 4, 1>::shared_bytes_of(shape);
    return limits.exact ? attend_kernel<float, 16, 1>::shared_bytes_of(shape)
                        : attend_kernel<uint16_t, 16, 1>::shared_bytes_of(shape);
}

// The most (token, head) pairs of an attention block. 16 if that fits in the 99 KB of a block of
// the smallest GPUs (less what the device keeps back). All GPUs use this value, so that all give
// one result.
inline uint32_t attend_rows(const model_config &config, const forward_limits &limits) {
    return attend_shared_bytes(config, limits, 16) <= 98u << 10 ? 16 : 4;
}

// Sizes that several places need.
struct forward_widths {
    uint32_t query, key, value;  // of a token's projections; latent: compressed key, none
    uint32_t attended;           // outputs of attention
    uint32_t inner_shared;       // widest of shared experts and dense layers
    uint32_t widest;             // the widest input of any product
};
inline forward_widths widths_of(const model_config &config) {
    const attention_config &a = config.attention;
    forward_widths out{};
    const bool latent = a.kind == attention_kind::latent;
    out.query = a.heads * a.head_dim;
    out.key = latent ? a.kv_lora_rank + config.rope.dimensions : a.kv_heads * a.head_dim;
    out.value = latent ? 0 : a.kv_heads * a.value_dim;
    out.attended = a.heads * (latent ? a.kv_lora_rank : a.value_dim);
    out.inner_shared = std::max(config.shared_intermediate, config.dense_intermediate);
    out.widest = std::max({config.hidden, a.heads * a.value_dim, out.inner_shared,
                           a.query_lora_rank, a.kv_lora_rank});
    return out;
}

inline void lay_out_prediction(const model_config &config, uint64_t tokens, memory_plan &device,
                               memory_plan &pinned, forward_buffers &b) {
    const uint64_t hidden = tokens * config.hidden, places = tokens * config.top_k;
    b.next_router = device.take<float>(tokens * config.experts);
    b.pinned_next_router = pinned.take<float>(2 * tokens * config.experts);
    b.ahead = device.take<float>(hidden);
    b.ahead_input = device.take<float>(hidden);
    b.ahead_shared = device.take<float>(hidden);
    b.ahead_places = device.take<uint32_t>(places);
    b.pinned_ahead_places = pinned.take<uint32_t>(places);
}

// Buffers for computing experts. A device that computes nothing else has only these.
inline forward_buffers lay_out_experts(const model_config &config, const forward_limits &limits,
                                       memory_plan &device, memory_plan &pinned) {
    const uint64_t tokens = limits.tokens_max, places = tokens * config.top_k;
    forward_buffers b;
    b.route = device.take<uint32_t>(3 * places);
    b.pinned_route = pinned.take<uint32_t>(3 * places);
    // An expert has two segments of two products each.
    b.items_max = 4 * config.experts;
    b.items = device.take<product_item>(b.items_max);
    b.pinned_items = pinned.take<product_item>(b.items_max);
    b.moe_input = device.take<float>(tokens * config.hidden);
    b.inner = device.take<float>(places * config.moe_intermediate);
    b.expert_outputs = device.take<float>(places * config.hidden);
    return b;
}

// Lays buffers out in device memory and pinned memory. Plans without a base only count.
inline forward_buffers lay_out(const model_config &config, const forward_limits &limits,
                               memory_plan &device, memory_plan &pinned) {
    const forward_widths width = widths_of(config);
    const attention_config &a = config.attention;
    const bool latent = a.kind == attention_kind::latent;
    const uint64_t tokens = limits.tokens_max, hidden = config.hidden;
    const uint64_t places = tokens * config.top_k;
    forward_buffers b = lay_out_experts(config, limits, device, pinned);
    b.pairs = config.rope.dimensions / 2;
    const uint64_t bytes = uint64_t{limits.streams} * limits.context_max * limits.cache_bytes();
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        b.keys.push_back(device.take<std::byte>(bytes * width.key));
        b.values.push_back(latent ? nullptr : device.take<std::byte>(bytes * width.value));
    }
    b.pass = device.take<uint32_t>((6 + 2ull * b.pairs) * tokens);
    b.pinned_pass = pinned.take<uint32_t>((6 + 2ull * b.pairs) * tokens);
    b.state = device.take<float>(tokens * hidden);
    b.normed = device.take<float>(std::max<uint64_t>(tokens, limits.outputs_max) * hidden);
    b.query = device.take<float>(tokens * width.query);
    if (latent) {
        b.query_a = device.take<float>(2 * tokens * a.query_lora_rank);
        b.compressed = device.take<float>(tokens * width.key);
        b.latent = device.take<float>(tokens * a.heads * width.key);
        b.head_values = device.take<float>(tokens * a.heads * a.value_dim);
    } else {
        b.key = device.take<float>(tokens * width.key);
        b.value = device.take<float>(tokens * width.value);
    }
    b.attended = device.take<float>(tokens * width.attended);
    b.partial = device.take<float>(uint64_t{splits_max} * a.heads * 2);
    b.partial_values = device.take<float>(uint64_t{splits_max} * width.attended);
    b.router = device.take<float>(tokens * config.experts);
    b.pinned_router = pinned.take<float>(2 * tokens * config.experts);
    b.told = device.take<uint32_t>(1);
    b.pinned_told = pinned.take<uint32_t>(1);
    if (limits.predict) lay_out_prediction(config, tokens, device, pinned, b);
    b.shared_inner = device.take<float>(tokens * width.inner_shared);
    b.shared_output = device.take<float>(tokens * hidden);
    b.shared_gate = device.take<float>(tokens);
    b.logits = device.take<float>(uint64_t{limits.outputs_max} * config.vocabulary);
    b.pinned_logits = pinned.take<float>(uint64_t{limits.outputs_max} * config.vocabulary);
    if (limits.tokens_max > few_tokens || limits.outputs_max > few_tokens)
        for (uint16_t **half : {&b.high, &b.low})
            *half = device.take<uint16_t>(std::max<uint64_t>(tokens, limits.outputs_max) *
                                          width.widest);
    b.workspace = device.take<std::byte>(limits.workspace_bytes);
    b.pinned_inputs = pinned.take<float>(tokens * hidden);
    b.pinned_outputs = pinned.take<float>(places * hidden);
    return b;
}

}  // namespace moorage::core::gpu

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
    uint32_t *notifications = nullptr, *pinned_notifications = nullptr;

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
    const attention_config &attention = config.attention;
    attend_shape shape{};
    shape.values_in_keys = attention.kind == attention_kind::latent;
    shape.head_dim =
        shape.values_in_keys ? attention.kv_lora_rank + config.rope.dimensions : attention.head_dim;
    shape.value_dim = shape.values_in_keys ? attention.kv_lora_rank : attention.value_dim;
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
    const attention_config &attention = config.attention;
    forward_widths widths{};
    const bool latent = attention.kind == attention_kind::latent;
    widths.query = attention.heads * attention.head_dim;
    widths.key = latent ? attention.kv_lora_rank + config.rope.dimensions
                        : attention.kv_heads * attention.head_dim;
    widths.value = latent ? 0 : attention.kv_heads * attention.value_dim;
    widths.attended = attention.heads * (latent ? attention.kv_lora_rank : attention.value_dim);
    widths.inner_shared = std::max(config.shared_intermediate, config.dense_intermediate);
    widths.widest =
        std::max({config.hidden, attention.heads * attention.value_dim, widths.inner_shared,
                  attention.query_lora_rank, attention.kv_lora_rank});
    return widths;
}

inline void lay_out_prediction(const model_config &config, uint64_t tokens, memory_plan &device,
                               memory_plan &pinned, forward_buffers &buffers) {
    const uint64_t hidden = tokens * config.hidden, places = tokens * config.top_k;
    buffers.next_router = device.take<float>(tokens * config.experts);
    buffers.pinned_next_router = pinned.take<float>(2 * tokens * config.experts);
    buffers.ahead = device.take<float>(hidden);
    buffers.ahead_input = device.take<float>(hidden);
    buffers.ahead_shared = device.take<float>(hidden);
    buffers.ahead_places = device.take<uint32_t>(places);
    buffers.pinned_ahead_places = pinned.take<uint32_t>(places);
}

// Buffers for computing experts. A device that computes nothing else has only these.
inline forward_buffers lay_out_experts(const model_config &config, const forward_limits &limits,
                                       memory_plan &device, memory_plan &pinned) {
    const uint64_t tokens = limits.tokens_max, places = tokens * config.top_k;
    forward_buffers buffers;
    buffers.route = device.take<uint32_t>(3 * places);
    buffers.pinned_route = pinned.take<uint32_t>(3 * places);
    // An expert has two segments of two products each.
    buffers.items_max = 4 * config.experts;
    buffers.items = device.take<product_item>(buffers.items_max);
    buffers.pinned_items = pinned.take<product_item>(buffers.items_max);
    buffers.moe_input = device.take<float>(tokens * config.hidden);
    buffers.inner = device.take<float>(places * config.moe_intermediate);
    buffers.expert_outputs = device.take<float>(places * config.hidden);
    return buffers;
}

// Lays buffers out in device memory and pinned memory. Plans without a base only count.
inline forward_buffers lay_out(const model_config &config, const forward_limits &limits,
                               memory_plan &device, memory_plan &pinned) {
    const forward_widths widths = widths_of(config);
    const attention_config &attention = config.attention;
    const bool latent = attention.kind == attention_kind::latent;
    const uint64_t tokens = limits.tokens_max, hidden = config.hidden;
    const uint64_t places = tokens * config.top_k;
    forward_buffers buffers = lay_out_experts(config, limits, device, pinned);
    buffers.pairs = config.rope.dimensions / 2;
    const uint64_t bytes = uint64_t{limits.streams} * limits.context_max * limits.cache_bytes();
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        buffers.keys.push_back(device.take<std::byte>(bytes * widths.key));
        buffers.values.push_back(latent ? nullptr : device.take<std::byte>(bytes * widths.value));
    }
    buffers.pass = device.take<uint32_t>((6 + 2ull * buffers.pairs) * tokens);
    buffers.pinned_pass = pinned.take<uint32_t>((6 + 2ull * buffers.pairs) * tokens);
    buffers.state = device.take<float>(tokens * hidden);
    buffers.normed = device.take<float>(std::max<uint64_t>(tokens, limits.outputs_max) * hidden);
    buffers.query = device.take<float>(tokens * widths.query);
    if (latent) {
        buffers.query_a = device.take<float>(2 * tokens * attention.query_lora_rank);
        buffers.compressed = device.take<float>(tokens * widths.key);
        buffers.latent = device.take<float>(tokens * attention.heads * widths.key);
        buffers.head_values = device.take<float>(tokens * attention.heads * attention.value_dim);
    } else {
        buffers.key = device.take<float>(tokens * widths.key);
        buffers.value = device.take<float>(tokens * widths.value);
    }
    buffers.attended = device.take<float>(tokens * widths.attended);
    buffers.partial = device.take<float>(uint64_t{splits_max} * attention.heads * 2);
    buffers.partial_values = device.take<float>(uint64_t{splits_max} * widths.attended);
    buffers.router = device.take<float>(tokens * config.experts);
    buffers.pinned_router = pinned.take<float>(2 * tokens * config.experts);
    buffers.notifications = device.take<uint32_t>(1);
    buffers.pinned_notifications = pinned.take<uint32_t>(1);
    if (limits.predict) lay_out_prediction(config, tokens, device, pinned, buffers);
    buffers.shared_inner = device.take<float>(tokens * widths.inner_shared);
    buffers.shared_output = device.take<float>(tokens * hidden);
    buffers.shared_gate = device.take<float>(tokens);
    buffers.logits = device.take<float>(uint64_t{limits.outputs_max} * config.vocabulary);
    buffers.pinned_logits = pinned.take<float>(uint64_t{limits.outputs_max} * config.vocabulary);
    if (limits.tokens_max > few_tokens || limits.outputs_max > few_tokens)
        for (uint16_t **half : {&buffers.high, &buffers.low})
            *half = device.take<uint16_t>(std::max<uint64_t>(tokens, limits.outputs_max) *
                                          widths.widest);
    buffers.workspace = device.take<std::byte>(limits.workspace_bytes);
    buffers.pinned_inputs = pinned.take<float>(tokens * hidden);
    buffers.pinned_outputs = pinned.take<float>(places * hidden);
    return buffers;
}

}  // namespace moorage::core::gpu

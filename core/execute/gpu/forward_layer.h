// forward_layer.h - the inside of forward.h: a layer's attention, its dense part, its experts.
#pragma once

#include "core/execute/gpu/forward.h"

namespace moorage::core::gpu {

template <class Device>
void forward<Device>::begin(const pass &tokens) {
    tokens_ = static_cast<uint32_t>(tokens.tokens.size());
    assert(tokens_ >= 1 && tokens_ <= limits_.tokens_max);
    recordings_.begin_pass();
    fill_pass(tokens);
    upload_words(buffers_.pass, buffers_.pinned_pass, buffers_.pass_bytes() / 4);
    launch(embed_kernel{weights_.embedding, buffers_.ids(), buffers_.state,
                        static_cast<float>(config_.embedding_multiplier)},
           tokens_);
    pending_ = pending::nothing;
    next_layer_ = 0;
    staged_ = 0;
}

template <class Device>
void forward<Device>::run_attention(uint32_t layer) {
    const uint32_t model_layer = moe_layers_[layer];
    upload_pending();
    run_recorded(operation::attention, layer, [&] {
        while (next_layer_ <= model_layer) run_layer(next_layer_++);
        compute_router_scores(layer);
        if (tokens_ <= few_tokens) launch_shared_expert(layer);
    });
    notifications_ += tokens_ <= few_tokens;
    next_layer_ = model_layer + 1;
    pending_ = pending::nothing;
}

template <class Device>
void forward<Device>::run_shared(uint32_t layer) {
    const device_layer &weights = weights_.layers[moe_layers_[layer]];
    pending_ = pending::experts;
    pending_shared_ = static_cast<bool>(weights.shared.gate);
    pending_gate_ = static_cast<bool>(weights.shared_gate);
    if (tokens_ > few_tokens) launch_shared_expert(layer);
}

template <class Device>
void forward<Device>::launch_shared_expert(uint32_t layer) {
    const device_layer &weights = weights_.layers[moe_layers_[layer]];
    if (weights.shared.gate) run_mlp(weights.shared, buffers_.moe_input);
}

template <class Device>
void forward<Device>::route(std::span<const uint32_t> chosen, std::span<const float> weights) {
    const uint32_t k = config_.top_k;
    assert(chosen.size() == size_t{tokens_} * k && weights.size() == chosen.size());
    staged_ = 0;
    first_assignments_.assign(config_.experts + 1, 0);
    for (const uint32_t expert : chosen)
        if (expert < config_.experts) ++first_assignments_[expert + 1];
    for (uint32_t e = 0; e < config_.experts; ++e)
        first_assignments_[e + 1] += first_assignments_[e];
    std::vector<uint32_t> &next = next_assignments_;
    next.assign(first_assignments_.begin(), first_assignments_.end() - 1);
    uint32_t *places = buffers_.pinned_route, *gather = places + chosen.size();
    float *route_weights = reinterpret_cast<float *>(gather + chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
        route_weights[i] = weights[i];
        places[i] = no_place;
        if (chosen[i] >= config_.experts) continue;  // a dropped choice
        const uint32_t place = places[i] = next[chosen[i]]++;
        gather[place] = static_cast<uint32_t>(i / k);
    }
    route_count_ = static_cast<uint32_t>(chosen.size());
    pending_words_ = 3 * route_count_;
    // Words that go with the launch of one token's experts need no launch of their own.
    if (tokens_ != 1 || pending_words_ > words_of_launch::most) upload_pending();
}

template <class Device>
void forward<Device>::run_head() {
    upload_pending();
    run_recorded(operation::head, 0, [&] {
        while (next_layer_ < config_.layers) run_layer(next_layer_++);
        combine(weights_.final_norm, buffers_.output_rows(), buffers_.normed, outputs_);
        if (outputs_ == 0) return;
        product_item item = make_product(weights_.head, weights_.head_bias, buffers_.normed,
                                         buffers_.logits, false);
        item.multiplier = static_cast<float>(1 / config_.logits_divisor);
        multiply({&item, 1}, outputs_);
        device_.copy_out(buffers_.pinned_logits, buffers_.logits,
                         uint64_t{outputs_} * config_.vocabulary * sizeof(float));
    });
    next_layer_ = config_.layers;
    pending_ = pending::nothing;
}

// The router's products of the layer and, if predictions are wanted, of the next layer.
template <class Device>
void forward<Device>::compute_router_scores(uint32_t layer) {
    const device_layer &weights = weights_.layers[moe_layers_[layer]];
    std::vector<product_item> items;
    items.push_back(make_product(weights.router, weights.router_bias, buffers_.moe_input,
                                 buffers_.router, false));
    // The factor of the shared expert is one more row of the same inputs.
    if (weights.shared_gate)
        items.push_back(make_product(weights.shared_gate, nullptr, buffers_.moe_input,
                                     buffers_.shared_gate, false));
    if (limits_.predict) {
        const device_layer &next = weights_.layers[moe_layers_[(layer + 1) % moe_layers_.size()]];
        items.push_back(make_product(next.router, next.router_bias, buffers_.moe_input,
                                     buffers_.next_router, false));
    }
    multiply(items, tokens_);
    send_scores(layer, true, limits_.predict);
}

// Uses a residual stream of its own, and its own input of the router and output of dense layers:
// experts and the CPU still read the true ones. Keys and values of the guess go to this pass's
// positions in the caches of its layers. Nobody reads them before those layers' own attention has
// written there.
template <class Device>
void forward<Device>::predict(uint32_t layer, std::span<const uint32_t> ready_experts) {
    upload_pending();
    counted_.assign(route_count_, 0);
    for (const uint32_t expert : ready_experts)
        std::fill(counted_.begin() + first_assignments_[expert],
                  counted_.begin() + first_assignments_[expert + 1], 1);
    for (uint32_t i = 0; i < route_count_; ++i) {
        const uint32_t place = buffers_.pinned_route[i];
        buffers_.pinned_ahead_places[i] = place != no_place && counted_[place] ? place : no_place;
    }
    upload_words(buffers_.ahead_places, buffers_.pinned_ahead_places, route_count_);
    const auto saved_state = std::tuple(next_layer_, pending_, pending_shared_, pending_gate_);
    float *const state = buffers_.state, *const input = buffers_.moe_input,
                 *const shared = buffers_.shared_output;
    run_recorded(operation::prediction, layer, [&] {
        uint32_t model_layer = moe_layers_[layer] + 1;
        const uint32_t next = moe_layers_[layer + 1];
        buffers_.state = buffers_.ahead;
        buffers_.moe_input = buffers_.ahead_input;
        combine(weights_.layers[model_layer].attention_norm, nullptr, buffers_.normed, tokens_,
                state);
        buffers_.shared_output = buffers_.ahead_shared;
        run_normed_layer(model_layer);
        while (model_layer != next) run_layer(++model_layer);
        const device_layer &weights = weights_.layers[next];
        product_item item = make_product(weights.router, weights.router_bias, buffers_.moe_input,
                                         buffers_.next_router, false);
        multiply({&item, 1}, tokens_);
        send_scores(layer, false, true);
        buffers_.state = state;
        buffers_.moe_input = input;
        buffers_.shared_output = shared;
    });
    notifications_ += tokens_ <= few_tokens;
    std::tie(next_layer_, pending_, pending_shared_, pending_gate_) = saved_state;
}

// Adds pending sums to the state, or to `source_state`, and normalises rows of it.
template <class Device>
void forward<Device>::combine(const device_norm &norm, const uint32_t *rows, float *output,
                              uint32_t count, const float *source_state) {
    combine_kernel kernel{};
    kernel.source_state = source_state;
    kernel.width = config_.hidden;
    kernel.state = buffers_.state;
    kernel.multiplier = static_cast<float>(config_.residual_multiplier);
    if (pending_ == pending::experts) {
        kernel.experts = buffers_.expert_outputs;
        kernel.places = source_state ? buffers_.ahead_places : buffers_.route;
        kernel.weights = reinterpret_cast<const float *>(buffers_.route + 2ull * route_count_);
        kernel.ranks = config_.top_k;
    }
    if (pending_ == pending::dense || (pending_ == pending::experts && pending_shared_))
        kernel.shared = buffers_.shared_output;
    if (pending_ == pending::experts && pending_gate_) kernel.gate = buffers_.shared_gate;
    pending_ = pending::nothing;
    kernel.norm_weight = norm.weight;
    kernel.norm_bias = norm.bias;
    kernel.layer_norm = config_.norm == norm_kind::layer;
    kernel.epsilon = static_cast<float>(config_.norm_epsilon);
    kernel.rows = rows;
    kernel.output = output;
    launch(kernel, count);
}

template <class Device>
void forward<Device>::run_layer(uint32_t layer) {
    combine(weights_.layers[layer].attention_norm, nullptr, buffers_.normed, tokens_);
    run_normed_layer(layer);
}

// The part of a layer after its first norm.
template <class Device>
void forward<Device>::run_normed_layer(uint32_t layer) {
    const device_layer &weights = weights_.layers[layer];
    if (limits_.exact)
        run_attention_block<float>(layer);
    else
        run_attention_block<uint16_t>(layer);
    const bool latent = config_.attention.kind == attention_kind::latent;
    product_item projection =
        make_product(weights.output, weights.output_bias,
                     latent ? buffers_.head_values : buffers_.attended, buffers_.state, true);
    multiply({&projection, 1}, tokens_);
    combine(weights.mlp_norm, nullptr, buffers_.moe_input, tokens_);
    if (config_.moe[layer]) return;
    run_mlp(weights.dense, buffers_.moe_input);
    pending_ = pending::dense;
}

template <class Device>
template <class Cache>
void forward<Device>::run_attention_block(uint32_t layer) {
    if (config_.attention.kind == attention_kind::latent)
        prepare_latent_heads<Cache>(layer);
    else
        prepare_grouped_heads<Cache>(layer);
    attend<Cache>(layer);
}

template <class Device>
template <class Cache>
void forward<Device>::prepare_grouped_heads(uint32_t layer) {
    const device_layer &weights = weights_.layers[layer];
    const attention_config &attention = config_.attention;
    std::vector<product_item> items;
    items.push_back(
        make_product(weights.query, weights.query_bias, buffers_.normed, buffers_.query, false));
    items.push_back(
        make_product(weights.key, weights.key_bias, buffers_.normed, buffers_.key, false));
    items.push_back(
        make_product(weights.value, weights.value_bias, buffers_.normed, buffers_.value, false));
    multiply(items, tokens_);
    if (attention.norm == query_key_norm::whole) {
        combine_kernel kernel{};
        kernel.epsilon = static_cast<float>(config_.norm_epsilon);
        kernel.state = kernel.output = buffers_.query;
        kernel.width = attention.heads * attention.head_dim;
        kernel.norm_weight = weights.query_norm;
        launch(kernel, tokens_);
        kernel.state = kernel.output = buffers_.key;
        kernel.width = attention.kv_heads * attention.head_dim;
        kernel.norm_weight = weights.key_norm;
        launch(kernel, tokens_);
    }
    heads_kernel<Cache> kernel{};
    kernel.tokens = token_places();
    kernel.query = buffers_.query;
    kernel.key = buffers_.key;
    kernel.value = buffers_.value;
    kernel.keys = cache_at<Cache>(buffers_.keys[layer]);
    kernel.values = cache_at<Cache>(buffers_.values[layer]);
    kernel.heads = attention.heads;
    kernel.kv_heads = attention.kv_heads;
    kernel.head_dim = attention.head_dim;
    kernel.context = limits_.context_max;
    if (attention.norm == query_key_norm::per_head) {
        kernel.query_norm = weights.query_norm;
        kernel.key_norm = weights.key_norm;
    }
    kernel.epsilon = static_cast<float>(config_.norm_epsilon);
    kernel.clip = static_cast<float>(attention.clip_qkv);
    launch(kernel,
           ceil_div(attention.heads + 2 * attention.kv_heads, heads_kernel<Cache>::threads / lanes),
           tokens_);
}

template <class Device>
template <class Cache>
void forward<Device>::prepare_latent_heads(uint32_t layer) {
    const device_layer &weights = weights_.layers[layer];
    const attention_config &attention = config_.attention;
    const float epsilon = static_cast<float>(config_.norm_epsilon);
    const token_table tokens = token_places();
    std::vector<product_item> items;
    items.push_back(
        make_product(weights.kv_a, nullptr, buffers_.normed, buffers_.compressed, false));
    if (attention.query_lora_rank == 0) {
        items.push_back(make_product(weights.query, weights.query_bias, buffers_.normed,
                                     buffers_.query, false));
        multiply(items, tokens_);
    } else {
        items.push_back(
            make_product(weights.query_a, nullptr, buffers_.normed, buffers_.query_a, false));
        multiply(items, tokens_);
        combine_kernel norm{};
        norm.width = attention.query_lora_rank;
        norm.state = buffers_.query_a;
        norm.output = buffers_.query_a + uint64_t{tokens_} * attention.query_lora_rank;
        norm.norm_weight = weights.query_a_norm;
        norm.epsilon = epsilon;
        launch(norm, tokens_);
        product_item query =
            make_product(weights.query_b, nullptr, norm.output, buffers_.query, false);
        multiply({&query, 1}, tokens_);
    }
    launch(latent_kernel<Cache>{tokens, buffers_.compressed, weights.kv_a_norm, epsilon,
                                attention.kv_lora_rank, limits_.context_max,
                                cache_at<Cache>(buffers_.keys[layer])},
           tokens_);
    if (weights.key_up) {
        const uint32_t width = attention.kv_lora_rank + config_.rope.dimensions;
        product_item keys =
            make_product(weights.key_up, nullptr, buffers_.query, buffers_.latent, false);
        keys.output_stride = attention.heads * width;
        set_head_groups(keys, attention.heads, attention.nope_dim + config_.rope.dimensions, width);
        multiply({&keys, 1}, tokens_);
        launch(turn_rest_kernel{tokens, buffers_.query, attention.heads, attention.nope_dim,
                                attention.kv_lora_rank, buffers_.latent},
               tokens_);
        return;
    }
    with_any_type(weights.kv_b.type, [&](auto type) {
        launch(absorb_kernel<type()>{tokens, buffers_.query, weights.kv_b, attention.heads,
                                     attention.nope_dim, attention.value_dim, buffers_.latent},
               attention.heads, tokens_, absorb_kernel<type()>::slices,
               absorb_kernel<type()>::shared_bytes);
    });
}

template <class Device>
template <class Cache>
void forward<Device>::attend(uint32_t layer) {
    const device_layer &weights = weights_.layers[layer];
    const attention_config &attention = config_.attention;
    const bool latent = attention.kind == attention_kind::latent;
    attend_shape shape{};
    shape.heads = attention.heads;
    shape.kv_heads = latent ? 1 : attention.kv_heads;
    shape.head_dim = latent ? attention.kv_lora_rank + config_.rope.dimensions : attention.head_dim;
    shape.value_dim = latent ? attention.kv_lora_rank : attention.value_dim;
    shape.key_stride = latent ? shape.head_dim : attention.kv_heads * attention.head_dim;
    shape.value_stride = latent ? shape.head_dim : attention.kv_heads * attention.value_dim;
    shape.context = limits_.context_max;
    shape.window = !attention.sliding.empty() && attention.sliding[layer] ? attention.window : 0;
    shape.scale = static_cast<float>(attention.scale);
    shape.values_in_keys = latent;
    const uint32_t rows_max = attend_rows(config_, limits_);
    shape.heads_at_once = std::min(shape.group(), rows_max);
    const float *query = latent ? buffers_.latent : buffers_.query;
    uint32_t tile_tokens = 1;
    if (tiles_ < tokens_) tile_tokens = rows_max / shape.heads_at_once;
    const uint32_t rows = tile_tokens * shape.heads_at_once;
    const bool wide = shape.value_dim > 128;
    if (wide)
        rows <= 4 ? attend_with<Cache, 4, 4>(shape, weights, layer, query, buffers_.attended)
                  : attend_with<Cache, 16, 4>(shape, weights, layer, query, buffers_.attended);
    else if (rows == 1)
        attend_with<Cache, 1, 1>(shape, weights, layer, query, buffers_.attended);
    else if (rows <= 4)
        attend_with<Cache, 4, 1>(shape, weights, layer, query, buffers_.attended);
    else if (rows <= 8)
        attend_with<Cache, 8, 1>(shape, weights, layer, query, buffers_.attended);
    else
        attend_with<Cache, 16, 1>(shape, weights, layer, query, buffers_.attended);
    if (!latent) return;
    // Computes each head's values from the compressed ones that it attended to.
    product_item item = make_product(weights.value_up ? weights.value_up : weights.kv_b, nullptr,
                                     buffers_.attended, buffers_.head_values, false);
    item.rows = item.output_stride = attention.heads * attention.value_dim;
    set_head_groups(item, attention.heads, attention.kv_lora_rank, attention.value_dim);
    if (!weights.value_up) {
        item.group_stride = attention.nope_dim + attention.value_dim;
        item.group_first = attention.nope_dim;
    }
    multiply({&item, 1}, tokens_);
}

template <class Device>
template <class Cache, uint32_t rows_max, uint32_t vectors>
void forward<Device>::attend_with(attend_shape shape, const device_layer &weights, uint32_t layer,
                                  const float *query, float *output) {
    const uint32_t blocks = tiles_ * shape.kv_heads * shape.head_blocks();
    const uint32_t seen = shape.window ? std::min(context_, shape.window) : context_;
    // Enough blocks to fill the GPU, each with at least one chunk.
    const uint32_t wanted = ceil_div(4 * device_.multiprocessors(), blocks);
    shape.splits =
        std::max(1u, std::min({wanted, splits_max / tokens_, ceil_div(seen, attend_chunk)}));
    attend_kernel<Cache, rows_max, vectors> kernel{};
    kernel.shape = shape;
    kernel.tiles = buffers_.tiles();
    kernel.streams = buffers_.streams();
    kernel.positions = buffers_.positions();
    kernel.query = query;
    kernel.keys = cache_at<Cache>(buffers_.keys[layer]);
    kernel.values = shape.values_in_keys ? kernel.keys : cache_at<Cache>(buffers_.values[layer]);
    kernel.sinks = weights.sinks;
    kernel.output = output;
    kernel.partial = buffers_.partial;
    kernel.partial_values = buffers_.partial_values;
    launch(kernel, tiles_, shape.kv_heads * shape.head_blocks(), shape.splits,
           attend_kernel<Cache, rows_max, vectors>::shared_bytes_of(shape));
    if (shape.splits > 1)
        launch(merge_kernel{shape.heads, shape.value_dim, shape.splits, weights.sinks,
                            buffers_.partial, buffers_.partial_values, output},
               shape.heads, tokens_, merge_kernel::blocks_of(shape.value_dim),
               merge_kernel::shared_bytes_of(shape.splits));
}

}  // namespace moorage::core::gpu

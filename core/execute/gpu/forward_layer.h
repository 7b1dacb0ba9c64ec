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
    bring(b_.pass, b_.pinned_pass, b_.pass_bytes() / 4);
    launch(embed_kernel{weights_.embedding, b_.ids(), b_.state,
                        static_cast<float>(config_.embedding_multiplier)},
           tokens_);
    pending_ = pending::nothing;
    next_layer_ = 0;
    staged_ = 0;
}

template <class Device>
void forward<Device>::attention(uint32_t layer) {
    const uint32_t target = moe_layers_[layer];
    bring_pending();
    recorded(operation::attention, layer, [&] {
        while (next_layer_ <= target) one_layer(next_layer_++);
        route_logits(layer);
        if (tokens_ <= few_tokens) launch_shared(layer);
    });
    told_ += tokens_ <= few_tokens;
    next_layer_ = target + 1;
    pending_ = pending::nothing;
}

template <class Device>
void forward<Device>::shared(uint32_t layer) {
    const device_layer &own = weights_.layers[moe_layers_[layer]];
    pending_ = pending::experts;
    pending_shared_ = static_cast<bool>(own.shared.gate);
    pending_gate_ = static_cast<bool>(own.shared_gate);
    if (tokens_ > few_tokens) launch_shared(layer);
}

template <class Device>
void forward<Device>::launch_shared(uint32_t layer) {
    const device_layer &own = weights_.layers[moe_layers_[layer]];
    if (own.shared.gate) mlp(own.shared, b_.moe_input);
}

template <class Device>
void forward<Device>::route(std::span<const uint32_t> chosen, std::span<const float> weights) {
    const uint32_t k = config_.top_k;
    assert(chosen.size() == size_t{tokens_} * k && weights.size() == chosen.size());
    staged_ = 0;
    first_.assign(config_.experts + 1, 0);
    for (const uint32_t expert : chosen)
        if (expert < config_.experts) ++first_[expert + 1];
    for (uint32_t e = 0; e < config_.experts; ++e) first_[e + 1] += first_[e];
    std::vector<uint32_t> &next = filled_;
    next.assign(first_.begin(), first_.end() - 1);
    uint32_t *places = b_.pinned_route, *gather = places + chosen.size();
    float *out = reinterpret_cast<float *>(gather + chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
        out[i] = weights[i];
        places[i] = no_place;
        if (chosen[i] >= config_.experts) continue;  // a dropped choice
        const uint32_t place = places[i] = next[chosen[i]]++;
        gather[place] = static_cast<uint32_t>(i / k);
    }
    route_count_ = static_cast<uint32_t>(chosen.size());
    pending_words_ = 3 * route_count_;
    // Words that go with the launch of one token's experts need no launch of their own.
    if (tokens_ != 1 || pending_words_ > words_of_launch::most) bring_pending();
}

template <class Device>
void forward<Device>::head() {
    bring_pending();
    recorded(operation::head, 0, [&] {
        while (next_layer_ < config_.layers) one_layer(next_layer_++);
        combine(weights_.final_norm, b_.output_rows(), b_.normed, outputs_);
        if (outputs_ == 0) return;
        product_item item = product(weights_.head, weights_.head_bias, b_.normed, b_.logits, false);
        item.multiplier = static_cast<float>(1 / config_.logits_divisor);
        multiply({&item, 1}, outputs_);
        device_.copy_out(b_.pinned_logits, b_.logits,
                         uint64_t{outputs_} * config_.vocabulary * sizeof(float));
    });
    next_layer_ = config_.layers;
    pending_ = pending::nothing;
}

// The router's products of the layer and, if predictions are wanted, of the next layer.
template <class Device>
void forward<Device>::route_logits(uint32_t layer) {
    const device_layer &own = weights_.layers[moe_layers_[layer]];
    std::vector<product_item> items;
    items.push_back(product(own.router, own.router_bias, b_.moe_input, b_.router, false));
    // The factor of the shared expert is one more row of the same inputs.
    if (own.shared_gate)
        items.push_back(product(own.shared_gate, nullptr, b_.moe_input, b_.shared_gate, false));
    if (limits_.predict) {
        const device_layer &next = weights_.layers[moe_layers_[(layer + 1) % moe_layers_.size()]];
        items.push_back(
            product(next.router, next.router_bias, b_.moe_input, b_.next_router, false));
    }
    multiply(items, tokens_);
    hand_over(layer, true, limits_.predict);
}

// Uses a residual stream of its own, and its own input of the router and output of dense layers:
// experts and the CPU still read the true ones. Keys and values of the guess go to this pass's
// positions in the caches of its layers. Nobody reads them before those layers' own attention has
// written there.
template <class Device>
void forward<Device>::predict(uint32_t layer, std::span<const uint32_t> there) {
    bring_pending();
    counted_.assign(route_count_, 0);
    for (const uint32_t expert : there)
        std::fill(counted_.begin() + first_[expert], counted_.begin() + first_[expert + 1], 1);
    for (uint32_t i = 0; i < route_count_; ++i) {
        const uint32_t place = b_.pinned_route[i];
        b_.pinned_ahead_places[i] = place != no_place && counted_[place] ? place : no_place;
    }
    bring(b_.ahead_places, b_.pinned_ahead_places, route_count_);
    const auto before = std::tuple(next_layer_, pending_, pending_shared_, pending_gate_);
    float *const state = b_.state, *const input = b_.moe_input, *const shared = b_.shared_output;
    recorded(operation::prediction, layer, [&] {
        uint32_t at = moe_layers_[layer] + 1;
        const uint32_t next = moe_layers_[layer + 1];
        b_.state = b_.ahead;
        b_.moe_input = b_.ahead_input;
        combine(weights_.layers[at].attention_norm, nullptr, b_.normed, tokens_, state);
        b_.shared_output = b_.ahead_shared;
        normed_layer(at);
        while (at != next) one_layer(++at);
        const device_layer &own = weights_.layers[next];
        product_item item =
            product(own.router, own.router_bias, b_.moe_input, b_.next_router, false);
        multiply({&item, 1}, tokens_);
        hand_over(layer, false, true);
        b_.state = state;
        b_.moe_input = input;
        b_.shared_output = shared;
    });
    told_ += tokens_ <= few_tokens;
    std::tie(next_layer_, pending_, pending_shared_, pending_gate_) = before;
}

// Adds pending sums to the state, or to `before`, and normalises rows of it.
template <class Device>
void forward<Device>::combine(const device_norm &norm, const uint32_t *rows, float *output,
                              uint32_t count, const float *before) {
    combine_kernel kernel{};
    kernel.before = before;
    kernel.width = config_.hidden;
    kernel.state = b_.state;
    kernel.multiplier = static_cast<float>(config_.residual_multiplier);
    if (pending_ == pending::experts) {
        kernel.experts = b_.expert_outputs;
        kernel.places = before ? b_.ahead_places : b_.route;
        kernel.weights = reinterpret_cast<const float *>(b_.route + 2ull * route_count_);
        kernel.ranks = config_.top_k;
    }
    if (pending_ == pending::dense || (pending_ == pending::experts && pending_shared_))
        kernel.shared = b_.shared_output;
    if (pending_ == pending::experts && pending_gate_) kernel.gate = b_.shared_gate;
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
void forward<Device>::one_layer(uint32_t layer) {
    combine(weights_.layers[layer].attention_norm, nullptr, b_.normed, tokens_);
    normed_layer(layer);
}

// The part of a layer after its first norm.
template <class Device>
void forward<Device>::normed_layer(uint32_t layer) {
    const device_layer &own = weights_.layers[layer];
    if (limits_.exact)
        attention_of<float>(layer);
    else
        attention_of<uint16_t>(layer);
    const bool latent = config_.attention.kind == attention_kind::latent;
    product_item out =
        product(own.output, own.output_bias, latent ? b_.head_values : b_.attended, b_.state, true);
    multiply({&out, 1}, tokens_);
    combine(own.mlp_norm, nullptr, b_.moe_input, tokens_);
    if (config_.moe[layer]) return;
    mlp(own.dense, b_.moe_input);
    pending_ = pending::dense;
}

template <class Device>
template <class Cache>
void forward<Device>::attention_of(uint32_t layer) {
    if (config_.attention.kind == attention_kind::latent)
        latent_heads<Cache>(layer);
    else
        grouped_heads<Cache>(layer);
    attend<Cache>(layer);
}

template <class Device>
template <class Cache>
void forward<Device>::grouped_heads(uint32_t layer) {
    const device_layer &own = weights_.layers[layer];
    const attention_config &a = config_.attention;
    std::vector<product_item> items;
    items.push_back(product(own.query, own.query_bias, b_.normed, b_.query, false));
    items.push_back(product(own.key, own.key_bias, b_.normed, b_.key, false));
    items.push_back(product(own.value, own.value_bias, b_.normed, b_.value, false));
    multiply(items, tokens_);
    if (a.norm == query_key_norm::whole) {
        combine_kernel kernel{};
        kernel.epsilon = static_cast<float>(config_.norm_epsilon);
        kernel.state = kernel.output = b_.query;
        kernel.width = a.heads * a.head_dim;
        kernel.norm_weight = own.query_norm;
        launch(kernel, tokens_);
        kernel.state = kernel.output = b_.key;
        kernel.width = a.kv_heads * a.head_dim;
        kernel.norm_weight = own.key_norm;
        launch(kernel, tokens_);
    }
    heads_kernel<Cache> kernel{};
    kernel.tokens = token_places();
    kernel.query = b_.query;
    kernel.key = b_.key;
    kernel.value = b_.value;
    kernel.keys = cache_at<Cache>(b_.keys[layer]);
    kernel.values = cache_at<Cache>(b_.values[layer]);
    kernel.heads = a.heads;
    kernel.kv_heads = a.kv_heads;
    kernel.head_dim = a.head_dim;
    kernel.context = limits_.context_max;
    if (a.norm == query_key_norm::per_head) {
        kernel.query_norm = own.query_norm;
        kernel.key_norm = own.key_norm;
    }
    kernel.epsilon = static_cast<float>(config_.norm_epsilon);
    kernel.clip = static_cast<float>(a.clip_qkv);
    launch(kernel, ceil_div(a.heads + 2 * a.kv_heads, heads_kernel<Cache>::threads / lanes),
           tokens_);
}

template <class Device>
template <class Cache>
void forward<Device>::latent_heads(uint32_t layer) {
    const device_layer &own = weights_.layers[layer];
    const attention_config &a = config_.attention;
    const float epsilon = static_cast<float>(config_.norm_epsilon);
    const token_table tokens = token_places();
    std::vector<product_item> items;
    items.push_back(product(own.kv_a, nullptr, b_.normed, b_.compressed, false));
    if (a.query_lora_rank == 0) {
        items.push_back(product(own.query, own.query_bias, b_.normed, b_.query, false));
        multiply(items, tokens_);
    } else {
        items.push_back(product(own.query_a, nullptr, b_.normed, b_.query_a, false));
        multiply(items, tokens_);
        combine_kernel norm{};
        norm.width = a.query_lora_rank;
        norm.state = b_.query_a;
        norm.output = b_.query_a + uint64_t{tokens_} * a.query_lora_rank;
        norm.norm_weight = own.query_a_norm;
        norm.epsilon = epsilon;
        launch(norm, tokens_);
        product_item query = product(own.query_b, nullptr, norm.output, b_.query, false);
        multiply({&query, 1}, tokens_);
    }
    launch(latent_kernel<Cache>{tokens, b_.compressed, own.kv_a_norm, epsilon, a.kv_lora_rank,
                                limits_.context_max, cache_at<Cache>(b_.keys[layer])},
           tokens_);
    if (own.key_up) {
        const uint32_t width = a.kv_lora_rank + config_.rope.dimensions;
        product_item keys = product(own.key_up, nullptr, b_.query, b_.latent, false);
        keys.output_stride = a.heads * width;
        in_groups_of(keys, a.heads, a.nope_dim + config_.rope.dimensions, width);
        multiply({&keys, 1}, tokens_);
        launch(turn_rest_kernel{tokens, b_.query, a.heads, a.nope_dim, a.kv_lora_rank, b_.latent},
               tokens_);
        return;
    }
    with_any_type(own.kv_b.type, [&](auto type) {
        launch(absorb_kernel<type()>{tokens, b_.query, own.kv_b, a.heads, a.nope_dim, a.value_dim,
                                     b_.latent},
               a.heads, tokens_, absorb_kernel<type()>::slices,
               absorb_kernel<type()>::shared_bytes);
    });
}

template <class Device>
template <class Cache>
void forward<Device>::attend(uint32_t layer) {
    const device_layer &own = weights_.layers[layer];
    const attention_config &a = config_.attention;
    const bool latent = a.kind == attention_kind::latent;
    attend_shape shape{};
    shape.heads = a.heads;
    shape.kv_heads = latent ? 1 : a.kv_heads;
    shape.head_dim = latent ? a.kv_lora_rank + config_.rope.dimensions : a.head_dim;
    shape.value_dim = latent ? a.kv_lora_rank : a.value_dim;
    shape.key_stride = latent ? shape.head_dim : a.kv_heads * a.head_dim;
    shape.value_stride = latent ? shape.head_dim : a.kv_heads * a.value_dim;
    shape.context = limits_.context_max;
    shape.window = !a.sliding.empty() && a.sliding[layer] ? a.window : 0;
    shape.scale = static_cast<float>(a.scale);
    shape.values_in_keys = latent;
    const uint32_t rows_max = attend_rows(config_, limits_);
    shape.heads_at_once = std::min(shape.group(), rows_max);
    const float *query = latent ? b_.latent : b_.query;
    uint32_t tile_tokens = 1;
    if (tiles_ < tokens_) tile_tokens = rows_max / shape.heads_at_once;
    const uint32_t rows = tile_tokens * shape.heads_at_once;
    const bool wide = shape.value_dim > 128;
    if (wide)
        rows <= 4 ? attend_with<Cache, 4, 4>(shape, own, layer, query, b_.attended)
                  : attend_with<Cache, 16, 4>(shape, own, layer, query, b_.attended);
    else if (rows == 1)
        attend_with<Cache, 1, 1>(shape, own, layer, query, b_.attended);
    else if (rows <= 4)
        attend_with<Cache, 4, 1>(shape, own, layer, query, b_.attended);
    else if (rows <= 8)
        attend_with<Cache, 8, 1>(shape, own, layer, query, b_.attended);
    else
        attend_with<Cache, 16, 1>(shape, own, layer, query, b_.attended);
    if (!latent) return;
    // Computes each head's values from the compressed ones that it attended to.
    product_item item = product(own.value_up ? own.value_up : own.kv_b, nullptr, b_.attended,
                                b_.head_values, false);
    item.rows = item.output_stride = a.heads * a.value_dim;
    in_groups_of(item, a.heads, a.kv_lora_rank, a.value_dim);
    if (!own.value_up) {
        item.group_stride = a.nope_dim + a.value_dim;
        item.group_first = a.nope_dim;
    }
    multiply({&item, 1}, tokens_);
}

template <class Device>
template <class Cache, uint32_t rows_max, uint32_t vectors>
void forward<Device>::attend_with(attend_shape shape, const device_layer &own, uint32_t layer,
                                  const float *query, float *output) {
    const uint32_t blocks = tiles_ * shape.kv_heads * shape.head_blocks();
    const uint32_t seen = shape.window ? std::min(context_, shape.window) : context_;
    // Enough blocks to fill the GPU, each with at least one chunk.
    const uint32_t wanted = ceil_div(4 * device_.multiprocessors(), blocks);
    shape.splits =
        std::max(1u, std::min({wanted, splits_max / tokens_, ceil_div(seen, attend_chunk)}));
    attend_kernel<Cache, rows_max, vectors> kernel{};
    kernel.shape = shape;
    kernel.tiles = b_.tiles();
    kernel.streams = b_.streams();
    kernel.positions = b_.positions();
    kernel.query = query;
    kernel.keys = cache_at<Cache>(b_.keys[layer]);
    kernel.values = shape.values_in_keys ? kernel.keys : cache_at<Cache>(b_.values[layer]);
    kernel.sinks = own.sinks;
    kernel.output = output;
    kernel.partial = b_.partial;
    kernel.partial_values = b_.partial_values;
    launch(kernel, tiles_, shape.kv_heads * shape.head_blocks(), shape.splits,
           attend_kernel<Cache, rows_max, vectors>::shared_bytes_of(shape));
    if (shape.splits > 1)
        launch(merge_kernel{shape.heads, shape.value_dim, shape.splits, own.sinks, b_.partial,
                            b_.partial_values, output},
               shape.heads, tokens_, merge_kernel::blocks_of(shape.value_dim),
               merge_kernel::shared_bytes_of(shape.splits));
}

// Computes a dense layer or the shared expert for all tokens, to shared_output.
template <class Device>
void forward<Device>::mlp(const device_mlp &weights, const float *input) {
    product_item up = product(weights.gate, weights.gate_bias, input, b_.shared_inner, false);
    up.second = weights.up;
    up.second_bias = weights.up_bias;
    up.end = product_end::activate;
    up.activation = config_.activation;
    up.limit = static_cast<float>(config_.activation_limit);
    multiply({&up, 1}, tokens_);
    product_item down =
        product(weights.down, weights.down_bias, b_.shared_inner, b_.shared_output, false);
    multiply({&down, 1}, tokens_);
}

// Multiplies many tokens by tiles. Two cases go by rows: rows in groups, which tiles do not know,
// and few rows, such as a router's. A tile is a block for 64 tokens, and a GPU has more
// multiprocessors.
template <class Device>
void forward<Device>::multiply(std::span<product_item> items, uint32_t tokens) {
    for (product_item &item : items) item.count = tokens;
    if (tokens <= few_tokens) return multiply_by_rows(items, tokens);
    const auto by_rows = [](const product_item &item) {
        constexpr uint32_t tile = tile_kernel<usual_weights, false>::side;
        return item.group_rows != 0 || (!item.second && item.rows <= tile);
    };
    while (!items.empty()) {
        const product_item &item = items.front();
        const bool plain = item.group_rows == 0 && !item.second && !limits_.exact;
        const bool by_library = plain && device_.product_of_many(item, tokens);
        size_t done = 1;
        if (!by_library && by_rows(item)) {
            done = static_cast<size_t>(std::ranges::find_if_not(items, by_rows) - items.begin());
            multiply_by_rows(items.first(done), tokens);
        } else if (!by_library) {
            multiply_by_tiles(item, tokens);
        }
        items = items.subspan(done);
    }
}

template <class Device>
void forward<Device>::multiply_by_tiles(const product_item &item, uint32_t tokens) {
    with_any_type(item.weights.type, [&](auto type) {
        const auto launch_with = [&](auto kernel) {
            launch(kernel, ceil_div(item.rows, kernel.side), 1, ceil_div(tokens, kernel.side),
                   kernel.shared_bytes);
        };
        if (item.second)
            launch_with(tile_kernel<type(), true>{item});
        else
            launch_with(tile_kernel<type(), false>{item});
    });
}

// Neighbouring products of one type share a launch.
template <class Device>
void forward<Device>::multiply_by_rows(std::span<const product_item> items, uint32_t tokens) {
    for (size_t first = 0; first < items.size();) {
        with_any_type(items[first].weights.type, [&](auto type) {
            const auto launch_with = [&](auto kernel) {
                uint32_t groups = 0;
                while (first < items.size() && kernel.count < kernel.inline_max &&
                       items[first].weights.type == type()) {
                    groups += kernel.groups_of(items[first]);
                    kernel.make_room(items[first]);
                    kernel.items[kernel.count++] = items[first++];
                }
                launch(kernel, ceil_div(groups, kernel.threads / lanes), 1,
                       ceil_div(tokens, few_tokens), kernel.shared_bytes());
            };
            if (tokens == 1 && rows_have_room<type()>(items))
                launch_with(row_kernel<type(), 1>{});
            else
                launch_with(row_kernel<type(), few_tokens>{});
        });
    }
}

// Whether the kernel for one token can have the shared memory that it needs.
template <class Device>
template <weight_type type>
bool forward<Device>::rows_have_room(std::span<const product_item> items) const {
    return std::ranges::all_of(items, [&](const product_item &item) {
        return row_kernel<type, 1>::shared_bytes_of(item) <= device_.shared_bytes_max();
    });
}

template <class Device>
void forward<Device>::stage_expert(uint32_t layer, const expert_in_slot &one, product_item &up,
                                   product_item &down) const {
    const uint32_t model_layer = moe_layers_[layer];
    const mlp_weights weights =
        segment_image(of_.weights().layers[model_layer].experts[one.expert], one.first, one.rows)
            .view(one.image);
    const std::vector<device_mlp> &all = weights_.layers[model_layer].experts;
    const device_mlp *beside = all.empty() ? nullptr : &all[one.expert];
    up = product(weights.gate, nullptr, b_.moe_input, b_.inner, false);
    up.second = weights.up;
    up.end = product_end::activate;
    up.activation = config_.activation;
    up.limit = static_cast<float>(config_.activation_limit);
    up.first = first_[one.expert];
    up.count = assignment_count(one.expert);
    if (tokens_ == 1)  // all assignments read the one input
        up.input_stride = 0;
    else
        up.gather = b_.route + route_count_;
    up.output_stride = config_.moe_intermediate;
    up.output_first = one.first;
    down = product(weights.down, nullptr, b_.inner + one.first, b_.expert_outputs, false);
    down.input_stride = config_.moe_intermediate;
    down.part = parts_of(config_.moe_intermediate, config_.part_unit).part;
    down.continues = one.first != 0;
    down.first = up.first;
    down.count = up.count;
    // Addresses of host memory mean nothing to a GPU.
    up.weights.group_of = up.second.group_of = down.weights.group_of = nullptr;
    if (!beside) return;
    if (beside->gate_bias) up.bias = beside->gate_bias + one.first;
    if (beside->up_bias) up.second_bias = beside->up_bias + one.first;
    down.bias = beside->down_bias;
    up.weights.group_of = beside->gate.group_of;
    up.second.group_of = beside->up.group_of;
    // A matrix with its own order of columns is never split.
    down.weights.group_of = beside->down.group_of;
}

template <class Device>
void forward<Device>::launch_items(const product_item *table, std::span<const product_item> items,
                                   uint32_t tokens_max) {
    uint32_t rows = 0;
    for (const product_item &item : items) rows = std::max(rows, item.rows);
    const uint32_t count = static_cast<uint32_t>(items.size());
    const bool two = static_cast<bool>(items[0].second);
    with_any_type(items[0].weights.type, [&](auto type) {
        const auto blocks_of = [&](const auto &kernel) {
            uint32_t groups = 0;
            for (const product_item &item : items)
                groups = std::max(groups, kernel.groups_of(item));
            return ceil_div(groups, kernel.threads / lanes);
        };
        const auto of_rows = [&](auto kernel) {
            kernel.count = count;
            kernel.apart = true;
            std::copy(items.begin(), items.end(), kernel.items);
            for (const product_item &item : items) kernel.make_room(item);
            kernel.words = take_pending();
            launch(kernel, blocks_of(kernel), count, 1, kernel.shared_bytes());
        };
        const auto of_table = [&](auto kernel) {
            kernel.table = table;
            for (const product_item &item : items) kernel.make_room(item);
            launch(kernel, blocks_of(kernel), count, 1, kernel.shared_bytes());
        };
        const auto of_tiles = [&](auto kernel) {
            kernel.table = table;
            launch(kernel, ceil_div(rows, kernel.side), count, ceil_div(tokens_max, kernel.side),
                   kernel.shared_bytes);
        };
        if (tokens_max == 1 && rows_have_room<type()>(items))
            table ? of_table(row_kernel<type(), 1>{})
                  : of_rows(row_kernel<type(), 1, experts_inline_max>{});
        else if (tokens_max <= few_tokens)
            table ? of_table(row_kernel<type(), few_tokens>{})
                  : of_rows(row_kernel<type(), few_tokens, experts_inline_max>{});
        else if (two)
            of_tiles(tile_kernel<type(), true>{});
        else
            of_tiles(tile_kernel<type(), false>{});
    });
}

template <class Device>
void forward<Device>::experts(uint32_t layer, std::span<const expert_in_slot> batch) {
    assert(staged_ + 2 * batch.size() <= b_.items_max);
    product_item *host = b_.pinned_items + staged_;
    const product_item *table = b_.items + staged_;
    // Sorted by the kernel that computes them. It does not depend on the rest of the batch.
    const auto kind_of = [&](const expert_in_slot &one) {
        const uint32_t count = assignment_count(one.expert);
        return count == 1 ? 0 : count <= few_tokens ? 1 : 2;
    };
    struct range {
        uint32_t first, count, tokens_max;
        bool in_table;
    } kinds[3];
    uint32_t used = 0, table_first = UINT32_MAX;
    for (int kind = 0; kind < 3; ++kind) {
        range &own = kinds[kind];
        own = {used, 0, 0, false};
        for (const expert_in_slot &one : batch) own.count += kind_of(one) == kind;
        uint32_t next = used;
        for (const expert_in_slot &one : batch) {
            if (kind_of(one) != kind) continue;
            own.tokens_max = std::max(own.tokens_max, assignment_count(one.expert));
            stage_expert(layer, one, host[next], host[next + own.count]);
            ++next;
        }
        used += 2 * own.count;
        own.in_table = kind == 2 || own.count > experts_inline_max;
        if (own.in_table && own.count != 0) table_first = std::min(table_first, own.first);
    }
    if (table_first < used)
        device_.copy_in(b_.items + staged_ + table_first, host + table_first,
                        (used - table_first) * sizeof(product_item));
    for (const range &own : kinds) {
        if (own.count == 0) continue;
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t first = own.first + half * own.count;
            launch_items(own.in_table ? table + first : nullptr, {host + first, own.count},
                         own.tokens_max);
        }
    }
    staged_ += used;
}

}  // namespace moorage::core::gpu

// forward_products.h - the inside of forward.h: products of weights, and the experts of a layer.
#pragma once

#include "core/execute/gpu/forward.h"

namespace moorage::core::gpu {

// Computes a dense layer or the shared expert for all tokens, to shared_output.
template <class Device>
void forward<Device>::run_mlp(const device_mlp &weights, const float *input) {
    product_item up =
        make_product(weights.gate, weights.gate_bias, input, buffers_.shared_inner, false);
    up.second = weights.up;
    up.second_bias = weights.up_bias;
    up.end = product_end::activate;
    up.activation = config_.activation;
    up.limit = static_cast<float>(config_.activation_limit);
    multiply({&up, 1}, tokens_);
    product_item down = make_product(weights.down, weights.down_bias, buffers_.shared_inner,
                                     buffers_.shared_output, false);
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
void forward<Device>::stage_expert(uint32_t layer, const expert_in_slot &segment, product_item &up,
                                   product_item &down) const {
    const uint32_t model_layer = moe_layers_[layer];
    const mlp_weights weights =
        segment_image(model_.weights().layers[model_layer].experts[segment.expert], segment.first,
                      segment.rows)
            .view(segment.image);
    const std::vector<device_mlp> &extras = weights_.layers[model_layer].experts;
    const device_mlp *extra = extras.empty() ? nullptr : &extras[segment.expert];
    up = make_product(weights.gate, nullptr, buffers_.moe_input, buffers_.inner, false);
    up.second = weights.up;
    up.end = product_end::activate;
    up.activation = config_.activation;
    up.limit = static_cast<float>(config_.activation_limit);
    up.first = first_assignments_[segment.expert];
    up.count = assignment_count(segment.expert);
    if (tokens_ == 1)  // all assignments read the one input
        up.input_stride = 0;
    else
        up.gather = buffers_.route + route_count_;
    up.output_stride = config_.moe_intermediate;
    up.output_first = segment.first;
    down = make_product(weights.down, nullptr, buffers_.inner + segment.first,
                        buffers_.expert_outputs, false);
    down.input_stride = config_.moe_intermediate;
    down.part = parts_of(config_.moe_intermediate, config_.part_unit).part;
    down.continues = segment.first != 0;
    down.first = up.first;
    down.count = up.count;
    // Addresses of host memory mean nothing to a GPU.
    up.weights.group_of = up.second.group_of = down.weights.group_of = nullptr;
    if (!extra) return;
    if (extra->gate_bias) up.bias = extra->gate_bias + segment.first;
    if (extra->up_bias) up.second_bias = extra->up_bias + segment.first;
    down.bias = extra->down_bias;
    up.weights.group_of = extra->gate.group_of;
    up.second.group_of = extra->up.group_of;
    // A matrix with its own order of columns is never split.
    down.weights.group_of = extra->down.group_of;
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
void forward<Device>::run_experts(uint32_t layer, std::span<const expert_in_slot> batch) {
    assert(staged_ + 2 * batch.size() <= buffers_.items_max);
    product_item *host = buffers_.pinned_items + staged_;
    const product_item *table = buffers_.items + staged_;
    // Sorted by the kernel that computes them. It does not depend on the rest of the batch.
    const auto kind_of = [&](const expert_in_slot &segment) {
        const uint32_t count = assignment_count(segment.expert);
        return count == 1 ? 0 : count <= few_tokens ? 1 : 2;
    };
    struct range {
        uint32_t first, count, tokens_max;
        bool in_table;
    } kinds[3];
    uint32_t used = 0, table_first = UINT32_MAX;
    for (int kind = 0; kind < 3; ++kind) {
        range &group = kinds[kind];
        group = {used, 0, 0, false};
        for (const expert_in_slot &segment : batch) group.count += kind_of(segment) == kind;
        uint32_t next = used;
        for (const expert_in_slot &segment : batch) {
            if (kind_of(segment) != kind) continue;
            group.tokens_max = std::max(group.tokens_max, assignment_count(segment.expert));
            stage_expert(layer, segment, host[next], host[next + group.count]);
            ++next;
        }
        used += 2 * group.count;
        group.in_table = kind == 2 || group.count > experts_inline_max;
        if (group.in_table && group.count != 0) table_first = std::min(table_first, group.first);
    }
    if (table_first < used)
        device_.copy_in(buffers_.items + staged_ + table_first, host + table_first,
                        (used - table_first) * sizeof(product_item));
    for (const range &group : kinds) {
        if (group.count == 0) continue;
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t first = group.first + half * group.count;
            launch_items(group.in_table ? table + first : nullptr, {host + first, group.count},
                         group.tokens_max);
        }
    }
    staged_ += used;
}

}  // namespace moorage::core::gpu

// kernel_products.h - checks of products: every type of weights, few tokens and many, experts in
// segments, embeddings.
#pragma once

#include "core/execute/gpu/arithmetic/tile.h"
#include "core/execute/gpu/arithmetic/tokens.h"
#include "tests/gpu/kernel_bench.h"

namespace moorage::core::gpu {

inline double activated_slowly(activation_kind kind, double limit, double gate, double up) {
    switch (kind) {
        case activation_kind::silu:
            return gate / (1 + std::exp(-gate)) * up;
        case activation_kind::gelu:
            return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0))) * up;
        case activation_kind::gelu_tanh:
            return 0.5 * gate *
                   (1 + std::tanh(std::sqrt(2 / 3.14159265358979) *
                                  (gate + 0.044715 * gate * gate * gate))) *
                   up;
        case activation_kind::clamped_swiglu: {
            const double low = std::min(gate, limit);
            return (std::clamp(up, -limit, limit) + 1) * low / (1 + std::exp(-1.702 * low));
        }
    }
    return 0;
}

inline double product_slowly(const random_matrix &weights, uint32_t row, const float *input) {
    double sum = 0;
    for (uint32_t c = 0; c < weights.shape.columns; ++c) sum += weights.at(row, c) * input[c];
    return sum;
}

// Both kernels over the same item. `many` selects the one on the matrix units.
template <weight_type type, class Bench>
void launch_product(Bench &bench, const product_item &item, bool many) {
    if (many) {
        const uint32_t x = ceil_div(item.rows, 64), z = ceil_div(item.count, 64);
        if (item.second)
            bench.device().launch(tile_kernel<type, true>{item}, x, 1, z,
                                  tile_kernel<type, true>::shared_bytes);
        else
            bench.device().launch(tile_kernel<type, false>{item}, x, 1, z,
                                  tile_kernel<type, false>::shared_bytes);
        return;
    }
    const auto of_rows = [&](auto kernel, uint32_t tokens_max) {
        kernel.items[0] = item;
        kernel.count = 1;
        kernel.make_room(item);
        bench.device().launch(kernel, ceil_div(kernel.groups_of(item), kernel.threads / lanes), 1,
                              ceil_div(item.count, tokens_max), kernel.shared_bytes());
    };
    if (item.count == 1)
        of_rows(row_kernel<type, 1>{}, 1);
    else
        of_rows(row_kernel<type, 8>{}, 8);
}

// For these types the matrix units keep 16 of the 24 bits.
template <weight_type type>
constexpr bool is_cut = type != weight_type::f16 &&format_of(type).unit == unit_form::two;
// At least so many columns, in whole blocks. Rows of fp8 may end anywhere.
constexpr uint32_t whole_columns(weight_type type, uint32_t least) {
    const uint32_t block = type == weight_type::fp8 ? 1 : format_of(type).block;
    return (least + block - 1) / block * block;
}

// Checks output += multiplier * (W x + bias) with gathered inputs, for one token to many.
template <weight_type type, class Bench>
void check_product(Bench &bench, uint32_t rows, uint32_t columns, uint32_t tokens, bool many) {
    const random_matrix weights = bench.make_matrix(type, rows, columns);
    const std::vector<float> bias = bench.floats(rows), old_output = bench.floats(tokens * rows);
    const std::vector<float> input = bench.floats((tokens + 2) * columns);
    std::vector<uint32_t> gather(tokens);
    for (uint32_t &source_row : gather) source_row = bench.below(tokens + 2);
    product_item item;
    item.weights = weights.shape;
    item.bias = bench.put(bias);
    item.input = bench.put(input);
    item.gather = bench.put(gather);
    item.output = bench.put(old_output);
    item.input_stride = columns;
    item.output_stride = item.rows = rows;
    item.count = tokens;
    item.end = product_end::add;
    item.multiplier = 0.75f;
    item.exact = true;
    launch_product<type>(bench, item, many);
    std::vector<double> expected(tokens * rows);
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < rows; ++r)
            expected[t * rows + r] =
                old_output[t * rows + r] +
                0.75 * (product_slowly(weights, r, &input[gather[t] * columns]) + bias[r]);
    const double limit = many && is_cut<type> ? 1e-4 : 2e-6 * std::sqrt(columns);
    bench.expect(std::string(many ? "tile " : "rows ") + name_of(type) + " " +
                     std::to_string(rows) + "x" + std::to_string(columns) + " tokens " +
                     std::to_string(tokens),
                 bench.get(item.output, tokens * rows), expected, limit);
}

// Rows in groups that read their own stretch of the input, like values of latent attention.
template <class Bench>
void check_groups(Bench &bench) {
    const uint32_t heads = 3, head_rows = 5, skipped_rows = 4, columns = 24, tokens = 3;
    const random_matrix weights =
        bench.make_matrix(weight_type::bf16, heads * (head_rows + skipped_rows), columns);
    const std::vector<float> input = bench.floats(tokens * heads * columns);
    product_item item;
    item.weights = weights.shape;
    item.input = bench.put(input);
    item.output = bench.template poisoned<float>(tokens * heads * head_rows);
    item.input_stride = heads * columns;
    item.output_stride = item.rows = heads * head_rows;
    item.count = tokens;
    item.group_rows = head_rows;
    item.group_stride = head_rows + skipped_rows;
    item.group_first = skipped_rows;
    item.group_input = columns;
    item.group_output = head_rows;
    launch_product<weight_type::bf16>(bench, item, false);
    std::vector<double> expected;
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t h = 0; h < heads; ++h)
            for (uint32_t r = 0; r < head_rows; ++r)
                expected.push_back(product_slowly(weights,
                                                  h * (head_rows + skipped_rows) + skipped_rows + r,
                                                  &input[(t * heads + h) * columns]));
    bench.expect("rows in groups", bench.get(item.output, expected.size()), expected, 1e-5);
}

// An expert in one or two segments: gate, up and activation, then down, part by part. Each part has
// `units` of the smallest size that its format allows.
template <weight_type type, class Bench>
void check_expert(Bench &bench, activation_kind kind, uint32_t tokens, uint32_t intermediate,
                  uint32_t top, bool many, uint32_t units = 1) {
    const uint32_t hidden = whole_columns(type, 96);
    const uint32_t part =
        units * part_unit_of(packed_matrix(type, 1, whole_columns(type, 32), nullptr));
    const uint32_t assignments = tokens + 3, first = 2;
    const std::vector<float> input = bench.floats(tokens * hidden, 0.5);
    const std::vector<float> gate_bias = bench.floats(intermediate), up_bias = gate_bias;
    const std::vector<float> down_bias = bench.floats(hidden);
    std::vector<uint32_t> gather(assignments);
    for (uint32_t &source_row : gather) source_row = bench.below(tokens);
    float *inner = bench.template poisoned<float>(assignments * intermediate);
    float *output = bench.template poisoned<float>(assignments * hidden);
    const float *device_input = bench.put(input);
    const uint32_t *device_gather = bench.put(gather);
    const float *biases[] = {bench.put(gate_bias), bench.put(up_bias), bench.put(down_bias)};
    std::vector<double> expected(tokens * hidden);
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < hidden; ++r) expected[t * hidden + r] = down_bias[r];
    for (uint32_t begin = 0; begin < intermediate; begin += top) {
        const uint32_t rows = std::min(top, intermediate - begin);
        const random_matrix gate = bench.make_matrix(type, rows, hidden);
        const random_matrix up = bench.make_matrix(type, rows, hidden);
        const random_matrix down = bench.make_matrix(type, hidden, rows);
        product_item item;
        item.weights = gate.shape, item.second = up.shape;
        item.bias = biases[0] + begin, item.second_bias = biases[1] + begin;
        item.input = device_input, item.gather = device_gather, item.output = inner;
        item.input_stride = hidden, item.output_stride = intermediate;
        item.output_first = begin, item.rows = rows;
        item.first = first, item.count = tokens;
        item.end = product_end::activate, item.activation = kind, item.limit = 1.5f;
        item.exact = true;
        launch_product<type>(bench, item, many);
        product_item second;
        second.weights = down.shape, second.bias = biases[2];
        second.input = inner + begin, second.output = output;
        second.input_stride = intermediate, second.output_stride = second.rows = hidden;
        second.first = first, second.count = tokens;
        second.part = part, second.continues = begin != 0, second.exact = true;
        launch_product<type>(bench, second, many);
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t i = 0; i < rows; ++i) {
                const float *x = &input[gather[first + t] * hidden];
                const double value =
                    activated_slowly(kind, 1.5, product_slowly(gate, i, x) + gate_bias[begin + i],
                                     product_slowly(up, i, x) + up_bias[begin + i]);
                for (uint32_t r = 0; r < hidden; ++r)
                    expected[t * hidden + r] += down.at(r, i) * value;
            }
    }
    const double limit = many && is_cut<type> ? 1e-3 : 2e-5;
    bench.expect(std::string("expert ") + name_of(type) + (many ? " on tiles" : " by rows") +
                     (top < intermediate ? " split" : "") +
                     (intermediate % part != 0 ? " with a short part" : "") + " activation " +
                     std::to_string(static_cast<int>(kind)),
                 bench.get(output + first * hidden, tokens * hidden), expected, limit);
}

template <class Bench>
void check_embedding(Bench &bench) {
    const random_matrix embedding = bench.make_matrix(weight_type::bf16, 11, 40);
    const std::vector<uint32_t> ids{3, 0, 10};
    float *output = bench.template poisoned<float>(ids.size() * 40);
    bench.device().launch(embed_kernel{embedding.shape, bench.put(ids), output, 1.5f}, 3, 1, 1, 0);
    std::vector<double> expected;
    for (const uint32_t id : ids)
        for (uint32_t c = 0; c < 40; ++c) expected.push_back(1.5 * embedding.at(id, c));
    bench.expect("embedding", bench.get(output, expected.size()), expected, 1e-7);

    const std::vector<float> input = bench.floats(777);
    uint16_t *high = bench.template poisoned<uint16_t>(777);
    uint16_t *low = bench.template poisoned<uint16_t>(777);
    bench.device().launch(halve_kernel{bench.put(input), high, low, 777}, 4, 1, 1, 0);
    const auto highs = bench.get(high, 777), lows = bench.get(low, 777);
    std::vector<float> sums;
    for (size_t i = 0; i < 777; ++i)
        sums.push_back(float_of_bf16(highs[i]) + float_of_bf16(lows[i]));
    bench.expect("halves", sums, {input.begin(), input.end()}, 1e-5);
}

template <weight_type type, class Bench>
void check_products_of(Bench &bench) {
    const auto columns = [](uint32_t least) { return whole_columns(type, least); };
    for (const uint32_t tokens : {1u, 3u, 8u, 19u}) {
        check_product<type>(bench, 37, columns(96), tokens, false);
        check_product<type>(bench, 9, columns(523), tokens, false);  // beyond units
    }
    check_product<type>(bench, 100, columns(72), 70, true);
    check_product<type>(bench, 64, columns(91), 9, true);
    check_product<type>(bench, 70, columns(608), 9, true);  // several copies of formats of few bits
    // An expert's parts are whole blocks.
    const uint32_t block = format_of(type).block;
    const uint32_t inner = type == weight_type::int4_ordered ? 192 : block > 32 ? 2 * block : 192;
    const uint32_t third = block > 32 ? block : 64, half = block > 32 ? block : 96;
    const bool splits = type != weight_type::int4_ordered;
    check_expert<type>(bench, activation_kind::silu, 5, inner, inner, false);
    check_expert<type>(bench, activation_kind::gelu, 1, inner, splits ? third : inner, false);
    check_expert<type>(bench, activation_kind::clamped_swiglu, 20, inner, splits ? half : inner,
                       true);
    if (splits) {  // the last part is half as long
        const uint32_t uneven = block > 32 ? 3 * block : 160;
        check_expert<type>(bench, activation_kind::silu, 2, uneven, uneven, false, 2);
    }
}

// One format for each shape of units. The other formats differ only in the work of a single thread.
constexpr bool is_sample_format(weight_type type) {
    using enum weight_type;
    for (const weight_type candidate : {bf16, f32, mxfp4, q8_0, q4_k, q6_k, int4_ordered})
        if (type == candidate) return true;
    return false;
}
// `all_formats` false: only a few of them.
template <class Bench>
void check_products(Bench &bench, bool all_formats = true) {
    const auto check = [&]<weight_type type>() {
        if (all_formats || is_sample_format(type)) check_products_of<type>(bench);
    };
    const auto check_each = [&]<size_t... index>(std::index_sequence<index...>) {
        (check.template operator()<weight_formats[index].type>(), ...);
    };
    check_each(std::make_index_sequence<weight_format_count>());
    check_expert<weight_type::bf16>(bench, activation_kind::gelu_tanh, 8, 192, 192, false);
    check_expert<weight_type::bf16>(bench, activation_kind::clamped_swiglu, 2, 192, 128, false);
    check_groups(bench);
    check_embedding(bench);
}

}  // namespace moorage::core::gpu

// product.h - products of weights and activations: a warp a row for few tokens, and what such a
// product is.
//
// Every matrix of a model goes through product_item: projections, routers, experts, the head. The
// kernel for few tokens streams the weights once; tile.h has the one for many.
#pragma once

#include "core/execute/gpu/arithmetic/weights_read.h"

namespace moorage::core::gpu {

enum class product_end : uint8_t {
    store,    // output = multiplier * (sum + bias)
    add,      // output += multiplier * (sum + bias)
    activate  // output = activation(first sum + bias, second sum + bias)
};

// For assignments a in [first, first + count), rows r of `weights`:
// output[a * output_stride + output_first + r] from input[(gather ? gather[a] : a) * input_stride].
struct product_item {
    matrix weights, second;  // second: for product_end::activate, else empty
    const float *bias = nullptr, *second_bias = nullptr;  // by row
    const float *input = nullptr;
    float *output = nullptr;
    const uint32_t *gather = nullptr;
    uint32_t input_stride = 0, output_stride = 0, output_first = 0;
    uint32_t first = 0, count = 0;
    // Columns are summed part by part, so that the segments of an expert, each a number of parts,
    // add up to the same bits as the whole; 0: one part.
    uint32_t part = 0;
    bool continues = false;  // sums go on from the output of the segment before; no bias then
    bool exact = false;      // matrix units get all 24 bits of the inputs
    product_end end = product_end::store;
    activation_kind activation = activation_kind::silu;
    float limit = 0, multiplier = 1;
    // Rows in groups (heads): row r is row group_first + r / group_rows * group_stride +
    // r % group_rows of the matrix, reads the input from r / group_rows * group_input on, and goes
    // to r / group_rows * group_output + r % group_rows of the output. No group continues another.
    uint32_t group_rows = 0, group_stride = 0, group_first = 0, group_input = 0, group_output = 0;
    uint32_t rows = 0;
};

MOORAGE_HOST_DEVICE inline uint32_t weight_row(const product_item &item, uint32_t row) {
    if (item.group_rows == 0) return row;
    return item.group_first + row / item.group_rows * item.group_stride + row % item.group_rows;
}
MOORAGE_HOST_DEVICE inline uint32_t input_column(const product_item &item, uint32_t row) {
    return item.group_rows == 0 ? 0 : row / item.group_rows * item.group_input;
}

MOORAGE_HOST_DEVICE inline uint32_t output_column(const product_item &item, uint32_t row) {
    if (item.group_rows == 0) return item.output_first + row;
    return row / item.group_rows * item.group_output + row % item.group_rows;
}

// Where the sum of (assignment, row) goes.
MOORAGE_HOST_DEVICE inline void finish(const product_item &item, uint32_t assignment, uint32_t row,
                                       float sum, float second) {
    float &output = item.output[static_cast<uint64_t>(assignment) * item.output_stride +
                                output_column(item, row)];
    if (item.end == product_end::activate)
        output = activated(item.activation, item.limit, sum, second);
    else if (item.end == product_end::add)
        output += item.multiplier * sum;
    else
        output = item.multiplier * sum;
}
// What the sum of (assignment, row) begins with.
MOORAGE_HOST_DEVICE inline float beginning(const product_item &item, uint32_t assignment,
                                           uint32_t row) {
    if (item.continues)
        return item.output[static_cast<uint64_t>(assignment) * item.output_stride +
                           item.output_first + row];
    return item.bias ? item.bias[row] : 0;
}

// Experts whose items go with the launch: 3 of the 4 KB that arguments may have.
constexpr uint32_t experts_inline_max = 16;

// Blocks: x over the rows of all `items`, or of one item each in y; z over groups of tokens. The
// items lie in the arguments or, where they are too many, in a table in device memory.
template <weight_type type, uint32_t tokens_max, uint32_t items_max = 4>
struct row_kernel {
    static constexpr uint32_t threads = 256;
    static constexpr uint32_t inline_max = items_max;
    product_item items[inline_max];
    uint32_t count = 0;                   // in `items`
    bool apart = false;                   // one of them for each y
    const product_item *table = nullptr;  // the same

    // The warp's item and row; null: none.
    MOORAGE_HOST_DEVICE const product_item *find(uint32_t block_y, uint32_t &row) const {
        if (const product_item *list = table ? table : apart ? items : nullptr)
            return row < list[block_y].rows ? list + block_y : nullptr;
        for (uint32_t i = 0; i < count; ++i) {
            if (row < items[i].rows) return items + i;
            row -= items[i].rows;
        }
        return nullptr;
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        typename Team::template local<numbers<float, tokens_max>> sums(team), seconds(team);
        team.each_warp([&](uint32_t warp) {
            uint32_t row = team.block_x * (threads / lanes) + warp;
            const product_item *item = find(team.block_y, row);
            if (!item || team.block_z * tokens_max >= item->count) return;
            one_row(team, *item, row, warp, sums, seconds);
        });
    }

private:
    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void one_row(Team &team, const product_item &item, uint32_t row,
                                     uint32_t warp, Local &sums, Local &seconds) const {
        const uint32_t first = item.first + team.block_z * tokens_max;
        const uint32_t source = weight_row(item, row);
        token_inputs<tokens_max> inputs;
        inputs.base = item.input + input_column(item, row);
        inputs.count = smaller(tokens_max, item.first + item.count - first);
        inputs.aligned = aligned16(inputs.base) && item.input_stride % 4 == 0;
        MOORAGE_UNROLL
        for (uint32_t t = 0; t < tokens_max; ++t) {
            const uint32_t assignment = first + (t < inputs.count ? t : 0);
            const uint32_t from = item.gather ? item.gather[assignment] : assignment;
            inputs.offset[t] = static_cast<uint64_t>(from) * item.input_stride;
        }
        numbers<float, tokens_max> total;
        for (uint32_t t = 0; t < tokens_max; ++t)
            total.at[t] = t < inputs.count ? beginning(item, first + t, row) : 0;
        const uint32_t columns = item.weights.columns;
        const uint32_t step = item.part ? item.part : columns;
        for (uint32_t begin = 0; begin < columns; begin += step) {
            const uint32_t end = smaller(begin + step, columns);
            sum_columns(team, item.weights, source, begin, end, warp, inputs, sums);
            MOORAGE_UNROLL
            for (uint32_t t = 0; t < tokens_max; ++t) total.at[t] += sums[warp * lanes].at[t];
        }
        if (item.end == product_end::activate)
            sum_columns(team, item.second, source, 0, columns, warp, inputs, seconds);
        team.first_lane(warp, [&](uint32_t thread) {
            const float second_bias = item.second_bias ? item.second_bias[row] : 0;
            MOORAGE_UNROLL
            for (uint32_t t = 0; t < tokens_max; ++t)
                if (t < inputs.count)
                    finish(item, first + t, row, total.at[t],
                           item.end == product_end::activate ? seconds[thread].at[t] + second_bias
                                                             : 0);
        });
    }

    // The sums over [begin, end), in every lane.
    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void sum_columns(Team &team, const matrix &weights, uint32_t row,
                                         uint32_t begin, uint32_t end, uint32_t warp,
                                         const token_inputs<tokens_max> &inputs,
                                         Local &sums) const {
        team.each_lane(warp, [&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t t = 0; t < tokens_max; ++t) sums[thread].at[t] = 0;
            add_lane<type>(row_of<type>(weights, row), begin, end, thread % lanes, inputs,
                           sums[thread].at);
        });
        MOORAGE_UNROLL
        for (uint32_t t = 0; t < tokens_max; ++t)
            if (t < inputs.count)
                team.warp_sum(warp, [&](uint32_t thread) -> float & { return sums[thread].at[t]; });
    }
};

}  // namespace moorage::core::gpu

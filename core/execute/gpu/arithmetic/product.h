// product.h - products of weights and activations. Defines a product, and the kernel for few tokens
// with one warp a row.
//
// Every matrix of a model goes through product_item: projections, routers, experts, the head. The
// kernel for few tokens streams the weights once. The kernel for many tokens is in tile.h.
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
    // Columns are summed part by part. So the segments of an expert, each a number of parts, add up
    // to the same bits as the whole. 0: one part.
    uint32_t part = 0;
    bool continues = false;  // sums go on from the output of the segment before, without bias
    bool exact = false;      // matrix units get all 24 bits of the inputs
    product_end end = product_end::store;
    activation_kind activation = activation_kind::silu;
    float limit = 0, multiplier = 1;
    // Rows in groups (heads). Row r is row group_first + r / group_rows * group_stride + r %
    // group_rows of the matrix. It reads the input from r / group_rows * group_input on. It goes to
    // r / group_rows * group_output + r % group_rows of the output. No group continues another.
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

// Writes the sum of (assignment, row).
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
// The value at which the sum of (assignment, row) begins.
MOORAGE_HOST_DEVICE inline float start_value(const product_item &item, uint32_t assignment,
                                             uint32_t row) {
    if (item.continues)
        return item.output[static_cast<uint64_t>(assignment) * item.output_stride +
                           item.output_first + row];
    return item.bias ? item.bias[row] : 0;
}

// A table that a launch writes to memory, for later launches.
struct words_of_launch {
    static constexpr uint32_t most = 48;
    uint32_t words[most], count = 0;
    uint32_t *output = nullptr;

    template <class Team>
    MOORAGE_HOST_DEVICE void write(Team &team) const {
        if (count == 0 || team.block_x != 0 || team.block_y != 0 || team.block_z != 0) return;
        team.each([&](uint32_t thread) {
            if (thread < count) output[thread] = words[thread];
        });
    }
};

// Experts whose items go with the launch. They take 3 of the 4 KB that arguments may have.
constexpr uint32_t experts_inline_max = 16;

// Blocks: x over the row groups of all `items`, or y over the items and x over the row groups of
// one; z over groups of tokens. The items lie in the arguments. If they are too many, they lie in a
// table in device memory.
//
// For one token and a format of few bits, a warp first copies its rows to shared memory, 16 bytes a
// lane and all at once. Otherwise each read has 2 or 4 bytes. The values made of them then fill the
// registers before enough reads are under way (decision 0045).
template <weight_type type, uint32_t tokens_max, uint32_t items_max = 4>
struct row_kernel {
    static constexpr uint32_t threads = 256;
    static constexpr uint32_t inline_max = items_max;
    // A warp computes two rows at once if reading inputs takes longer than reading weights. Two
    // cases take one row: the second row belongs to another matrix, or rows are summed part by
    // part. In the latter case it takes as many parts as have room for their values in registers.
    static constexpr weight_format format = weight_formats[static_cast<size_t>(type)];
    static constexpr bool copies = tokens_max == 1 && format.bytes < 2 * format.block;
    // Blocks that a multiprocessor should hold at least, as far as registers suffice.
    static constexpr uint32_t blocks_min = !copies ? 0 : format.block > 128 ? 3 : 4;
    static constexpr uint32_t rows_most = tokens_max > 1 ? 2 : 1;
    MOORAGE_HOST_DEVICE static uint32_t rows_at_once(const product_item &item) {
        return item.part != 0 || item.end == product_end::activate ? 1 : rows_most;
    }
    // Warps that compute an item.
    MOORAGE_HOST_DEVICE static uint32_t groups_of(const product_item &item) {
        return ceil_div(item.rows, rows_at_once(item));
    }
    static constexpr uint32_t parts_at_once = tokens_max > 1 ? 2 : reader<type>::runs > 2 ? 4 : 8;
    product_item items[inline_max];
    uint32_t count = 0;                   // number of `items`
    bool apart = false;                   // one item for each y
    const product_item *table = nullptr;  // the same, in device memory
    words_of_launch words;
    uint32_t copied_bytes = 0;  // shared memory of a warp: the most that an item needs

    static uint32_t copied_bytes_of(const product_item &item) {
        return copies ? (item.second ? 2 : 1) * near_bytes_of(item.weights.columns) : 0;
    }
    static uint32_t shared_bytes_of(const product_item &item) {
        return threads / lanes * copied_bytes_of(item);
    }
    void make_room(const product_item &item) {
        copied_bytes = larger(copied_bytes, copied_bytes_of(item));
    }
    uint32_t shared_bytes() const { return threads / lanes * copied_bytes; }

    // Finds the item of a group of rows, and makes `group` the number within the item. False: there
    // is none. The item is copied, so that arguments are read in place.
    MOORAGE_HOST_DEVICE bool find(uint32_t block_y, uint32_t &group, product_item &found) const {
        if (table) {
            found = table[block_y];
            return group < groups_of(found);
        }
        if (apart) {
            found = items[block_y];
            return group < groups_of(found);
        }
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t groups = groups_of(items[i]);
            if (group < groups) {
                found = items[i];
                return true;
            }
            group -= groups;
        }
        return false;
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        constexpr uint32_t at_once = parts_at_once > 2 ? parts_at_once : 2;
        typename Team::template local<numbers<float, at_once * tokens_max>> sums(team);
        words.write(team);
        team.each_warp([&](uint32_t warp) {
            uint32_t group = team.block_x * (threads / lanes) + warp;
            product_item item;
            if (!find(team.block_y, group, item) || team.block_z * tokens_max >= item.count) return;
            const uint32_t source = weight_row(item, group);
            if (item.part != 0)
                return sum_parts(
                    team, item, group,
                    stage_rows<1>(team, warp, item, {{row_of<type>(item.weights, source)}})
                        .value[0],
                    warp, sums);
            if (item.end == product_end::activate)
                return sum_rows<2>(team, item, group, false,
                                   stage_rows<2>(team, warp, item,
                                                 {{row_of<type>(item.weights, source),
                                                   row_of<type>(item.second, source)}}),
                                   warp, sums);
            plain_rows(team, item, group * rows_most, warp, sums);
        });
    }

private:
    // Bytes of a row's values, as in bytes_of_columns(). fp8 may end within a block.
    MOORAGE_HOST_DEVICE static uint32_t row_bytes_of(uint32_t columns) {
        return columns * format.bytes / format.block;
    }
    // Bytes from the border of 16 bytes before them to the one behind.
    MOORAGE_HOST_DEVICE static uint32_t near_bytes_of(uint32_t columns) {
        return (row_bytes_of(columns) + 30) / 16 * 16;
    }
    // Rows at the place from which they are read: in the warp's part of shared memory, or in device
    // memory.
    template <uint32_t count, class Team>
    MOORAGE_HOST_DEVICE auto stage_rows(Team &team, uint32_t warp, const product_item &item,
                                        const numbers<stored_row, count> &rows) const {
        if constexpr (!copies) {
            return rows;
        } else {
            const uint32_t room = near_bytes_of(item.weights.columns);
            std::byte *const warp_memory = team.shared + warp * copied_bytes;
            numbers<near_row, count> staged;
            MOORAGE_UNROLL
            for (uint32_t r = 0; r < count; ++r) {
                const std::byte *source = rows.value[r].values;
                const uint32_t misalignment = reinterpret_cast<uintptr_t>(source) & 15;
                const uint32_t end = misalignment + row_bytes_of(item.weights.columns);
                std::byte *const target = warp_memory + r * room;
                team.each_lane(warp, [&](uint32_t thread) {
                    for (uint32_t offset = thread % lanes * 16; offset < end; offset += lanes * 16)
                        team.copy16(target + offset, source - misalignment + offset,
                                    smaller(16, end - offset));
                });
                staged.value[r] = {
                    {target + misalignment}, rows.value[r].scales, rows.value[r].group_of};
            }
            team.copied(warp);
            return staged;
        }
    }

    MOORAGE_HOST_DEVICE token_inputs<tokens_max> inputs_of(const product_item &item, uint32_t row,
                                                           uint32_t first) const {
        token_inputs<tokens_max> inputs;
        inputs.base = item.input + input_column(item, row);
        inputs.count = smaller(tokens_max, item.first + item.count - first);
        inputs.aligned = aligned16(inputs.base) && item.input_stride % 4 == 0;
        MOORAGE_UNROLL
        for (uint32_t t = 0; t < tokens_max; ++t) {
            const uint32_t assignment = first + (t < inputs.count ? t : 0);
            const uint32_t source_row = item.gather ? item.gather[assignment] : assignment;
            inputs.offset[t] = static_cast<uint64_t>(source_row) * item.input_stride;
        }
        return inputs;
    }

    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void plain_rows(Team &team, const product_item &item, uint32_t row,
                                        uint32_t warp, Local &sums) const {
        const stored_row row_data = row_of<type>(item.weights, weight_row(item, row));
        if constexpr (rows_most == 1) {
            sum_rows<1>(team, item, row, false, stage_rows<1>(team, warp, item, {{row_data}}), warp,
                        sums);
        } else {
            const bool has_next = row + 1 < item.rows;
            const stored_row next =
                has_next ? row_of<type>(item.weights, weight_row(item, row + 1)) : row_data;
            // Two rows of one input. Rows of two groups each have their own input.
            const bool at_once = has_next && input_column(item, row) == input_column(item, row + 1);
            using row_pair = numbers<stored_row, 2>;
            sum_rows<2>(team, item, row, at_once, row_pair{{row_data, next}}, warp, sums);
            if (has_next && !at_once)
                sum_rows<2>(team, item, row + 1, false, row_pair{{next, row_data}}, warp, sums);
        }
    }

    // Row `row`, the first of `row_data`, together with that of the second matrix or the next one.
    template <uint32_t count, class Team, class Row, class Local>
    MOORAGE_HOST_DEVICE void sum_rows(Team &team, const product_item &item, uint32_t row,
                                      bool and_next, const numbers<Row, count> &row_data,
                                      uint32_t warp, Local &sums) const {
        const uint32_t first = item.first + team.block_z * tokens_max;
        const token_inputs<tokens_max> inputs = inputs_of(item, row, first);
        team.each_lane(warp, [&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < count * tokens_max; ++i) sums[thread].value[i] = 0;
            add_rows<type, tokens_max, count>(row_data, 0, item.weights.columns, thread % lanes,
                                              inputs, sums[thread].value);
        });
        sum_lanes<count>(team, warp, inputs, sums);
        team.first_lane(warp, [&](uint32_t thread) {
            const float second_bias = item.second_bias ? item.second_bias[row] : 0;
            MOORAGE_UNROLL
            for (uint32_t t = 0; t < tokens_max; ++t) {
                if (t >= inputs.count) continue;
                const float second_sum = sums[thread].value[(count - 1) * tokens_max + t];
                finish(item, first + t, row,
                       start_value(item, first + t, row) + sums[thread].value[t],
                       second_sum + second_bias);
                if (and_next)
                    finish(item, first + t, row + 1,
                           start_value(item, first + t, row + 1) + second_sum, 0);
            }
        });
    }

    template <class Team, class Row, class Local>
    MOORAGE_HOST_DEVICE void sum_parts(Team &team, const product_item &item, uint32_t row,
                                       const Row &row_data, uint32_t warp, Local &sums) const {
        const uint32_t first = item.first + team.block_z * tokens_max;
        const token_inputs<tokens_max> inputs = inputs_of(item, row, first);
        numbers<float, tokens_max> total;
        MOORAGE_UNROLL
        for (uint32_t t = 0; t < tokens_max; ++t)
            total.value[t] = t < inputs.count ? start_value(item, first + t, row) : 0;
        const uint32_t columns = item.weights.columns, step = item.part * parts_at_once;
        for (uint32_t begin = 0; begin < columns; begin += step) {
            team.each_lane(warp, [&](uint32_t thread) {
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < parts_at_once * tokens_max; ++i) sums[thread].value[i] = 0;
                add_parts<type, tokens_max, parts_at_once>(
                    row_data, begin, item.part, smaller(begin + step, columns), thread % lanes,
                    inputs, sums[thread].value);
            });
            sum_lanes<parts_at_once>(team, warp, inputs, sums);
            MOORAGE_UNROLL
            for (uint32_t p = 0; p < parts_at_once; ++p) MOORAGE_UNROLL
            for (uint32_t t = 0; t < tokens_max; ++t)
                if (begin + p * item.part < columns)
                    total.value[t] += sums[warp * lanes].value[p * tokens_max + t];
        }
        team.first_lane(warp, [&](uint32_t) {
            MOORAGE_UNROLL
            for (uint32_t t = 0; t < tokens_max; ++t)
                if (t < inputs.count) finish(item, first + t, row, total.value[t], 0);
        });
    }

    // Sums over all lanes: the first `count` sums of each token, then in every lane.
    template <uint32_t count, class Team, class Local>
    MOORAGE_HOST_DEVICE void sum_lanes(Team &team, uint32_t warp,
                                       const token_inputs<tokens_max> &inputs, Local &sums) const {
        MOORAGE_UNROLL
        for (uint32_t t = 0; t < tokens_max; ++t) {
            if (!has_token(inputs, t)) break;
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < count; ++i)
                team.warp_sum(warp, [&](uint32_t thread) -> float & {
                    return sums[thread].value[i * tokens_max + t];
                });
        }
    }
};

}  // namespace moorage::core::gpu

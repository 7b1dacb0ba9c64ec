// tile.h - products for many tokens: blocks of 64 rows times 64 tokens on the matrix units.
//
// Both sides are taken as sums of the numbers that the units multiply, so that results keep nearly
// the precision of the kernel for few tokens: high * high + high * low + low * high, in float32.
// Weights that are such numbers (weight_format::unit) have no low part; inputs get a third where
// the item asks for it. The sums of a segment go on from those of the segment before in the same
// order, so a split expert gives the same bits.
#pragma once

#include "core/execute/gpu/arithmetic/product.h"

namespace moorage::core::gpu {

// Blocks: x over rows, y items, z over tokens. The order of a sum is that of the columns, 16 at a
// time; product_item::part is not needed for it.
template <weight_type type, bool two>
struct tile_kernel {
    static constexpr uint32_t threads = 128;
    static constexpr uint32_t side = 64, depth = 32;
    static constexpr uint32_t stride = depth + 8;     // 16-bit values; spreads rows over banks
    static constexpr uint32_t out_stride = side + 4;  // floats
    static constexpr weight_format format_of_weights = weight_formats[static_cast<size_t>(type)];
    static constexpr bool split = format_of_weights.unit == unit_form::two;
    static constexpr uint32_t matrices = two ? 2 : 1;
    static constexpr uint32_t tile_values = side * stride;
    // Weights high and low of each matrix, three parts of the inputs; the results take the same
    // place.
    static constexpr uint32_t input_bytes =
        (matrices * (split ? 2 : 1) + 3) * tile_values * sizeof(uint16_t);
    static constexpr uint32_t output_bytes = matrices * side * out_stride * sizeof(float);
    static constexpr uint32_t shared_bytes =
        input_bytes > output_bytes ? input_bytes : output_bytes;
    product_item one;
    const product_item *table = nullptr;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const product_item &item = table ? table[team.block_y] : one;
        const uint32_t row = team.block_x * side, token = team.block_z * side;
        if (row >= item.rows || token >= item.count) return;
        // A warp computes a quarter: 32 rows times 32 tokens, in 2 x 2 tiles of 16.
        typename Team::template local_of_warp<numbers<typename Team::tile, 4 * matrices>> sums(
            team);
        start(team, item, row, token, sums);
        for (uint32_t column = 0; column < item.weights.columns; column += depth) {
            team.phase([&](uint32_t thread) { load(team, thread, item, row, token, column); });
            multiply(team, item.exact, sums);
            team.barrier();
        }
        end(team, item, row, token, sums);
    }

private:
    template <class Team>
    MOORAGE_HOST_DEVICE static uint16_t *area(Team &team, uint32_t number) {
        return reinterpret_cast<uint16_t *>(team.shared) + number * tile_values;
    }
    static constexpr uint32_t low_first = matrices;  // areas: highs, lows, then inputs
    static constexpr uint32_t input_first = matrices * (split ? 2 : 1);

    MOORAGE_HOST_DEVICE static uint32_t part_row(uint32_t warp, uint32_t i) {
        return warp / 2 * 32 + i / 2 * 16;
    }
    MOORAGE_HOST_DEVICE static uint32_t part_token(uint32_t warp, uint32_t i) {
        return warp % 2 * 32 + i % 2 * 16;
    }

    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void start(Team &team, const product_item &item, uint32_t row,
                                   uint32_t token, Local &sums) const {
        float *out = reinterpret_cast<float *>(team.shared);
        team.phase([&](uint32_t thread) {
            for (uint32_t i = thread; i < side * side; i += threads) {
                const uint32_t r = row + i / side, t = token + i % side;
                const bool inside = r < item.rows && t < item.count;
                out[i / side * out_stride + i % side] =
                    inside ? beginning(item, item.first + t, r) : 0;
                if constexpr (two)
                    out[(side + i / side) * out_stride + i % side] =
                        inside && item.second_bias ? item.second_bias[r] : 0;
            }
        });
        team.each_warp([&](uint32_t warp) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < 4 * matrices; ++i)
                team.tile_load(sums[warp].at[i],
                               out + (i / 4 * side + part_row(warp, i % 4)) * out_stride +
                                   part_token(warp, i % 4),
                               out_stride);
        });
        team.barrier();
    }

    // Eight columns of one row of weights; zeros beyond the matrix.
    MOORAGE_HOST_DEVICE static void load_weights(const matrix &from, uint32_t row, uint32_t rows,
                                                 uint32_t column, uint16_t *high, uint16_t *low) {
        using by = reader<type>;
        const stored_row data = row_of<type>(from, row);
        const bool aligned = row < rows && is_aligned<type>(data);
        if constexpr (format_of_weights.unit == unit_form::itself) {
            if (aligned && column + 8 <= from.columns) {
                const words16 words = load_stream(data.values + column * 2ull);
                MOORAGE_UNROLL
                for (uint32_t n = 0; n < 4; ++n) store_pair(high + 2 * n, words.word[n]);
                return;
            }
        }
        MOORAGE_UNROLL
        for (uint32_t begin = 0; begin < 8; begin += 4) {
            const uint32_t first = column + begin;
            floats4 values = {};
            if (aligned && first / span_columns<type> < from.columns / span_columns<type>)
                values = read_run<type, by::alignment>(data, first);
            else
                for (uint32_t n = 0; n < 4; ++n)
                    if (row < rows && first + n < from.columns)
                        values.at[n] = read_single<type>(data, first + n);
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < 4; ++n) {
                uint16_t rest;
                halve(values.at[n], high[begin + n], split ? low[begin + n] : rest);
            }
        }
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void load(Team &team, uint32_t thread, const product_item &item,
                                  uint32_t row, uint32_t token, uint32_t column) const {
        MOORAGE_UNROLL
        for (uint32_t half = 0; half < side * depth / 8 / threads; ++half) {
            const uint32_t i = thread + half * threads;
            const uint32_t line = i / (depth / 8), in_line = i % (depth / 8) * 8;
            const uint32_t at = line * stride + in_line;
            MOORAGE_UNROLL
            for (uint32_t m = 0; m < matrices; ++m)
                load_weights(m == 0 ? item.weights : item.second, row + line, item.rows,
                             column + in_line, area(team, m) + at,
                             split ? area(team, low_first + m) + at : nullptr);
            const uint32_t t = token + line;
            const bool inside = t < item.count;
            const uint32_t assignment = item.first + (inside ? t : 0);
            const uint32_t source = item.gather ? item.gather[assignment] : assignment;
            const float *input =
                item.input + static_cast<uint64_t>(source) * item.input_stride + column + in_line;
            uint16_t *high = area(team, input_first) + at;
            uint16_t *low = area(team, input_first + 1) + at;
            uint16_t *lowest = area(team, input_first + 2) + at;
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < 8; ++n) {
                const bool there = inside && column + in_line + n < item.weights.columns;
                const float value = there ? input[n] : 0;
                const float rest = halve(value, high[n], low[n]);
                uint16_t nothing;
                if (item.exact) halve(rest, lowest[n], nothing);
            }
        }
    }

    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void multiply(Team &team, bool exact, Local &sums) const {
        team.each_warp([&](uint32_t warp) {
            for (uint32_t k = 0; k < depth; k += 16) {
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < 4 * matrices; ++i) {
                    const uint32_t m = i / 4;
                    const uint32_t row = part_row(warp, i % 4) * stride + k;
                    const uint32_t token = part_token(warp, i % 4) * stride + k;
                    const uint16_t *inputs = area(team, input_first) + token;
                    team.tile_multiply(sums[warp].at[i], area(team, m) + row, inputs, stride);
                    team.tile_multiply(sums[warp].at[i], area(team, m) + row, inputs + tile_values,
                                       stride);
                    if (exact)
                        team.tile_multiply(sums[warp].at[i], area(team, m) + row,
                                           inputs + 2 * tile_values, stride);
                    if constexpr (split)
                        team.tile_multiply(sums[warp].at[i], area(team, low_first + m) + row,
                                           inputs, stride);
                }
            }
        });
    }

    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void end(Team &team, const product_item &item, uint32_t row, uint32_t token,
                                 Local &sums) const {
        float *out = reinterpret_cast<float *>(team.shared);
        team.each_warp([&](uint32_t warp) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < 4 * matrices; ++i)
                team.tile_store(sums[warp].at[i],
                                out + (i / 4 * side + part_row(warp, i % 4)) * out_stride +
                                    part_token(warp, i % 4),
                                out_stride);
        });
        team.barrier();
        team.each([&](uint32_t thread) {
            for (uint32_t i = thread; i < side * side; i += threads) {
                // Rows next to each other in one token's output go to threads next to each other.
                const uint32_t r = i % side, t = i / side;
                if (row + r >= item.rows || token + t >= item.count) continue;
                const float second = two ? out[(side + r) * out_stride + t] : 0;
                finish(item, item.first + token + t, row + r, out[r * out_stride + t], second);
            }
        });
    }
};

}  // namespace moorage::core::gpu

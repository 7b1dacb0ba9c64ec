// tile.h - products for many tokens: blocks of 64 rows times 64 tokens on the matrix units.
//
// Both sides are split into sums of numbers that the units multiply: high * high + high * low + low
// * high, in float32. So results keep nearly the precision of the kernel for few tokens. Weights
// that are such numbers (weight_format::unit) have no low part. Inputs get a third part if the item
// asks for it. The sums of a segment go on from those of the segment before in the same order, so a
// split expert gives the same bits.
//
// Formats of few bits are copied unchanged to shared memory, some blocks of each row at a time and
// 16 bytes a lane, and read there. Loads of two or four bytes from 64 rows would load the first
// cache more than everything else together (decision 0046).
#pragma once

#include "core/execute/gpu/arithmetic/product.h"

namespace moorage::core::gpu {

// Blocks: x over rows, y items, z over tokens. A sum follows the order of the columns, 16 at a
// time. It does not need product_item::part.
template <weight_type type, bool two>
struct tile_kernel {
    static constexpr uint32_t threads = 256;
    static constexpr uint32_t side = 64, depth = 32;
    static constexpr uint32_t out_stride = side + 4;  // floats
    static constexpr weight_format format_of_weights = weight_formats[static_cast<size_t>(type)];
    static constexpr bool split = format_of_weights.unit == unit_form::two;
    static constexpr uint32_t matrices = two ? 2 : 1;
    static constexpr uint32_t tile_values = side * depth;
    // The high and low weights of each matrix, and three parts of the inputs. The results take the
    // same place.
    static constexpr uint32_t parts_bytes =
        (matrices * (split ? 2 : 1) + 3) * tile_values * sizeof(uint16_t);
    // For formats of few bits. The copied part of a row reaches from the border of 16 bytes before
    // it to the one behind it. Rows lie an odd number of 16 bytes apart, which spreads them over
    // banks. There are two such copies: one is read, one is under way.
    static constexpr bool copies = format_of_weights.bytes < 2 * format_of_weights.block;
    static constexpr uint32_t copied_columns =
        format_of_weights.block > 64 ? format_of_weights.block : 64;
    MOORAGE_HOST_DEVICE static constexpr uint32_t copied_bytes(uint32_t columns) {
        return columns * format_of_weights.bytes / format_of_weights.block;
    }
    static constexpr uint32_t line_bytes = ((copied_bytes(copied_columns) + 30) / 16 | 1) * 16;
    static constexpr uint32_t copy_bytes = copies ? matrices * side * line_bytes : 0;
    static constexpr uint32_t output_bytes = matrices * side * out_stride * sizeof(float);
    static constexpr uint32_t shared_bytes =
        parts_bytes + 2 * copy_bytes > output_bytes ? parts_bytes + 2 * copy_bytes : output_bytes;
    static_assert(shared_bytes <= 99 << 10);  // limit of a block on the smallest GPUs
    product_item inline_item;
    const product_item *table = nullptr;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const product_item &item = table ? table[team.block_y] : inline_item;
        const uint32_t row = team.block_x * side, token = team.block_z * side;
        if (row >= item.rows || token >= item.count) return;
        // A warp computes an eighth: 16 rows times 32 tokens, in two tiles.
        typename Team::template local_of_warp<numbers<typename Team::tile, 2 * matrices>> sums(
            team);
        typename Team::template local<lines> thread_lines(team);
        team.each(
            [&](uint32_t thread) { thread_lines[thread] = lines_of(thread, item, row, token); });
        load_start_values(team, item, row, token, sums);
        if (is_smooth(item))
            add_columns<true>(team, item, row, item.count - token, thread_lines, sums);
        else
            add_columns<false>(team, item, row, item.count - token, thread_lines, sums);
        store_results(team, item, row, token, sums);
    }

private:
    // ---- where things lie in shared memory

    template <class Team>
    MOORAGE_HOST_DEVICE static uint16_t *area(Team &team, uint32_t number) {
        return reinterpret_cast<uint16_t *>(team.shared) + number * tile_values;
    }
    static constexpr uint32_t low_first = matrices;  // areas: highs, lows, then inputs
    static constexpr uint32_t input_first = matrices * (split ? 2 : 1);
    // Eight columns in turn. So threads that write two rows, or read eight lines, do not meet in a
    // bank.
    MOORAGE_HOST_DEVICE static uint32_t place(uint32_t line, uint32_t column) {
        return line * depth + ((column / 8 ^ line / 2 % 4) * 8 | column % 8);
    }
    template <class Team>
    MOORAGE_HOST_DEVICE static std::byte *copy_of(Team &team, uint32_t chunk, uint32_t m,
                                                  uint32_t line) {
        return team.shared + parts_bytes + chunk % 2 * copy_bytes + (m * side + line) * line_bytes;
    }

    MOORAGE_HOST_DEVICE static uint32_t first_row(uint32_t warp) { return warp / 2 * 16; }
    MOORAGE_HOST_DEVICE static uint32_t first_token(uint32_t warp, uint32_t t) {
        return warp % 2 * 32 + t * 16;
    }
    // Where a warp's tile i has its first sum: two tiles of the first matrix, two of the second.
    MOORAGE_HOST_DEVICE static uint32_t sum_at(uint32_t warp, uint32_t i) {
        return (i / 2 * side + first_row(warp)) * out_stride + first_token(warp, i % 2);
    }

    // ---- lines

    // A thread's line of each matrix and of the inputs. For lines beyond the matrix it is the last
    // line; nobody uses their result.
    struct lines {
        stored_row rows[matrices];
        const float *inputs;
    };
    MOORAGE_HOST_DEVICE static uint32_t line_of(uint32_t thread) { return thread / (depth / 8); }
    MOORAGE_HOST_DEVICE static uint32_t column_of(uint32_t thread) {
        return thread % (depth / 8) * 8;
    }
    MOORAGE_HOST_DEVICE static stored_row row_at(const product_item &item, uint32_t m,
                                                 uint32_t row) {
        return row_of<type>(m == 0 ? item.weights : item.second, smaller(row, item.rows - 1));
    }
    MOORAGE_HOST_DEVICE static lines lines_of(uint32_t thread, const product_item &item,
                                              uint32_t row, uint32_t token) {
        lines thread_lines;
        MOORAGE_UNROLL
        for (uint32_t m = 0; m < matrices; ++m)
            thread_lines.rows[m] = row_at(item, m, row + line_of(thread));
        const uint32_t assignment = item.first + smaller(token + line_of(thread), item.count - 1);
        const uint32_t source = item.gather ? item.gather[assignment] : assignment;
        thread_lines.inputs = item.input + static_cast<uint64_t>(source) * item.input_stride;
        return thread_lines;
    }
    // Whether nothing has to be checked for a line: neither its alignment nor its end.
    MOORAGE_HOST_DEVICE static bool is_smooth(const product_item &item) {
        const auto fits = [](const matrix &weights) {
            return is_aligned<type>(row_of<type>(weights, 0)) &&
                   is_aligned<type>(row_of<type>(weights, 1));
        };
        // With blocks of single bytes, the last block may be cut off.
        constexpr uint32_t block = format_of_weights.block;
        constexpr uint32_t whole = block == format_of_weights.bytes ? span_columns<type> : block;
        const uint32_t columns = item.weights.columns;
        return fits(item.weights) && (!two || fits(item.second)) && columns % depth == 0 &&
               columns % whole == 0 && item.input_stride % 4 == 0 &&
               reinterpret_cast<uintptr_t>(item.input) % 16 == 0;
    }

    // ---- columns

    // The part of the next columns that is under way while the units multiply these: eight of each
    // line. Copied parts do not count.
    static constexpr bool as_it_is = format_of_weights.unit == unit_form::itself;
    struct eight_values {
        float value[8];
    };
    struct fetched_columns {
        std::conditional_t<as_it_is, words16, eight_values> weights[copies ? 1 : matrices];
        eight_values inputs;
    };

    template <bool smooth, class Team, class Source, class Sums>
    MOORAGE_HOST_DEVICE static void add_columns(Team &team, const product_item &item, uint32_t row,
                                                uint32_t tokens, Source &thread_lines, Sums &sums) {
        const uint32_t columns = item.weights.columns;
        const bool exact = item.exact;
        typename Team::template local<fetched_columns> next(team);
        const auto take_next = [&](uint32_t column) {
            team.each([&](uint32_t thread) {
                take<smooth>(thread_lines[thread], columns, column + column_of(thread),
                             next[thread]);
            });
        };
        take_next(0);
        if constexpr (smooth && copies) copy(team, item, row, 0);
        for (uint32_t column = 0; column < columns; column += depth) {
            if constexpr (smooth && copies) {
                if (column % copied_columns == 0) {
                    team.each_warp([&](uint32_t warp) { team.copied(warp); });
                    team.barrier();
                    if (column + copied_columns < columns)
                        copy(team, item, row, column + copied_columns);
                }
            }
            team.phase([&](uint32_t thread) {
                put<smooth>(team, thread, thread_lines[thread], columns, column, exact,
                            next[thread]);
            });
            if (column + depth < columns) take_next(column + depth);
            multiply(team, exact, tokens, sums);
            team.barrier();
        }
    }

    // Takes the columns from `first` on of 64 rows of each matrix.
    template <class Team>
    MOORAGE_HOST_DEVICE static void copy(Team &team, const product_item &item, uint32_t row,
                                         uint32_t first) {
        constexpr uint32_t in_line = line_bytes / 16;
        const uint32_t bytes = copied_bytes(smaller(copied_columns, item.weights.columns - first));
        team.each([&](uint32_t thread) {
            for (uint32_t i = thread; i < matrices * side * in_line; i += threads) {
                const uint32_t m = i / (side * in_line), line = i / in_line % side;
                const std::byte *begin = row_at(item, m, row + line).values + copied_bytes(first);
                const uint32_t misalignment = reinterpret_cast<uintptr_t>(begin) & 15;
                const uint32_t offset = i % in_line * 16, end = misalignment + bytes;
                if (offset < end)
                    team.copy16(copy_of(team, first / copied_columns, m, line) + offset,
                                begin - misalignment + offset, smaller(16, end - offset));
            }
        });
    }
    // A row in the place to which it was copied, addressed by its original columns.
    template <class Team>
    MOORAGE_HOST_DEVICE static near_row copied_row(Team &team, const stored_row &row, uint32_t m,
                                                   uint32_t line, uint32_t column) {
        const uint32_t chunk = column / copied_columns;
        const uint32_t begin = copied_bytes(chunk * copied_columns);
        const uint32_t misalignment = reinterpret_cast<uintptr_t>(row.values + begin) & 15;
        return {near_bytes{copy_of(team, chunk, m, line) + misalignment} - begin, row.scales,
                row.group_of};
    }

    // Zeros beyond the columns.
    template <bool smooth>
    MOORAGE_HOST_DEVICE static void take(const lines &thread_lines, uint32_t columns,
                                         uint32_t column, fetched_columns &target) {
        if constexpr (!copies) {
            MOORAGE_UNROLL
            for (uint32_t m = 0; m < matrices; ++m)
                take_weights<smooth>(thread_lines.rows[m], columns, column, target.weights[m]);
        }
        MOORAGE_UNROLL
        for (uint32_t begin = 0; begin < 8; begin += 4) {
            floats4 four = {};
            if constexpr (smooth) {
                four = load4(thread_lines.inputs + column + begin);
            } else {
                for (uint32_t n = 0; n < 4; ++n)
                    if (column + begin + n < columns)
                        four.value[n] = thread_lines.inputs[column + begin + n];
            }
            for (uint32_t n = 0; n < 4; ++n) target.inputs.value[begin + n] = four.value[n];
        }
    }
    template <bool smooth>
    MOORAGE_HOST_DEVICE static void take_weights(const stored_row &row, uint32_t columns,
                                                 uint32_t column, words16 &target) {
        if (smooth || (is_aligned<type>(row) && column + 8 <= columns)) {
            target = load_stream(row.values + column * 2ull);
            return;
        }
        eight_values values;
        take_weights<smooth>(row, columns, column, values);
        target = take_bf16(values.value);
    }
    template <bool smooth, class Row>
    MOORAGE_HOST_DEVICE static void take_weights(const Row &row, uint32_t columns, uint32_t column,
                                                 eight_values &target) {
        MOORAGE_UNROLL
        for (uint32_t begin = 0; begin < 8; begin += 4) {
            const uint32_t first = column + begin;
            floats4 four = {};
            if (smooth || (is_aligned<type>(row) &&
                           first / span_columns<type> < columns / span_columns<type>)) {
                four = read_run<type, reader<type>::alignment>(row, first);
            } else {
                for (uint32_t n = 0; n < 4; ++n)
                    if (first + n < columns) four.value[n] = read_single<type>(row, first + n);
            }
            for (uint32_t n = 0; n < 4; ++n) target.value[begin + n] = four.value[n];
        }
    }

    template <bool smooth, class Team>
    MOORAGE_HOST_DEVICE static void put(Team &team, uint32_t thread, const lines &thread_lines,
                                        uint32_t columns, uint32_t column, bool exact,
                                        fetched_columns &next) {
        const uint32_t line = line_of(thread), first = column + column_of(thread);
        const uint32_t offset = place(line, column_of(thread));
        MOORAGE_UNROLL
        for (uint32_t m = 0; m < matrices; ++m) {
            if constexpr (as_it_is) {
                store16(area(team, m) + offset, next.weights[m]);
            } else {
                eight_values values;
                if constexpr (!copies)
                    values = next.weights[m];
                else if constexpr (smooth)
                    take_weights<smooth>(copied_row(team, thread_lines.rows[m], m, line, column),
                                         columns, first, values);
                else
                    take_weights<smooth>(thread_lines.rows[m], columns, first, values);
                store16(area(team, m) + offset, take_bf16(values.value));
                if constexpr (split)
                    store16(area(team, low_first + m) + offset, take_bf16(values.value));
            }
        }
        store16(area(team, input_first) + offset, take_bf16(next.inputs.value));
        store16(area(team, input_first + 1) + offset, take_bf16(next.inputs.value));
        if (exact) store16(area(team, input_first + 2) + offset, take_bf16(next.inputs.value));
    }

    // ---- products

    // Tiles without a token are left out.
    template <class Team, class Sums>
    MOORAGE_HOST_DEVICE static void multiply(Team &team, bool exact, uint32_t tokens, Sums &sums) {
        team.each_warp([&](uint32_t warp) {
            if (first_token(warp, 1) < tokens)
                multiply_tiles<2>(team, warp, exact, sums[warp].value);
            else if (first_token(warp, 0) < tokens)
                multiply_tiles<1>(team, warp, exact, sums[warp].value);
        });
    }
    // Weights and inputs are read once for all their products. A sum waits as rarely as possible
    // for its earlier value, because all other sums come between.
    template <uint32_t count, class Team>
    MOORAGE_HOST_DEVICE static void multiply_tiles(Team &team, uint32_t warp, bool exact,
                                                   typename Team::tile *sums) {
        const auto add = [&](const auto &weights, const auto &inputs) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < count * matrices; ++i)
                team.tile_multiply(sums[i / count * 2 + i % count], weights[i / count],
                                   inputs[i % count]);
        };
        MOORAGE_UNROLL
        for (uint32_t k = 0; k < depth; k += 16) {
            const auto weights = [&](uint32_t first, auto &target) {
                MOORAGE_UNROLL
                for (uint32_t m = 0; m < matrices; ++m)
                    team.tile_load(target[m], area(team, first + m), first_row(warp), k, place);
            };
            const auto inputs = [&](uint32_t part, auto &target) {
                MOORAGE_UNROLL
                for (uint32_t t = 0; t < count; ++t)
                    team.tile_load(target[t], area(team, input_first + part), first_token(warp, t),
                                   k, place);
            };
            typename Team::rows_tile high[matrices], low[matrices];
            typename Team::tokens_tile first[count], next[count];
            weights(0, high);
            inputs(0, first);
            inputs(1, next);
            if constexpr (split) weights(low_first, low);
            add(high, first);
            add(high, next);
            if (exact) {
                inputs(2, next);
                add(high, next);
            }
            if constexpr (split) add(low, first);
        }
    }

    // ---- beginning and end

    template <class Team, class Sums>
    MOORAGE_HOST_DEVICE static void load_start_values(Team &team, const product_item &item,
                                                      uint32_t row, uint32_t token, Sums &sums) {
        float *results = reinterpret_cast<float *>(team.shared);
        team.phase([&](uint32_t thread) {
            for (uint32_t i = thread; i < side * side; i += threads) {
                const uint32_t r = row + i / side, t = token + i % side;
                const bool inside = r < item.rows && t < item.count;
                results[i / side * out_stride + i % side] =
                    inside ? start_value(item, item.first + t, r) : 0;
                if constexpr (two)
                    results[(side + i / side) * out_stride + i % side] =
                        inside && item.second_bias ? item.second_bias[r] : 0;
            }
        });
        team.each_warp([&](uint32_t warp) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < 2 * matrices; ++i)
                team.tile_load(sums[warp].value[i], results + sum_at(warp, i), out_stride);
        });
        team.barrier();
    }

    template <class Team, class Sums>
    MOORAGE_HOST_DEVICE static void store_results(Team &team, const product_item &item,
                                                  uint32_t row, uint32_t token, Sums &sums) {
        float *results = reinterpret_cast<float *>(team.shared);
        team.each_warp([&](uint32_t warp) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < 2 * matrices; ++i)
                team.tile_store(sums[warp].value[i], results + sum_at(warp, i), out_stride);
        });
        team.barrier();
        team.each([&](uint32_t thread) {
            for (uint32_t i = thread; i < side * side; i += threads) {
                // Neighbouring rows in one token's output go to neighbouring threads.
                const uint32_t r = i % side, t = i / side;
                if (row + r >= item.rows || token + t >= item.count) continue;
                const float second = two ? results[(side + r) * out_stride + t] : 0;
                finish(item, item.first + token + t, row + r, results[r * out_stride + t], second);
            }
        });
    }
};

}  // namespace moorage::core::gpu

// attend.h - attention over the caches: any number of query heads a key head, sinks, windows. Long
// contexts are computed in splits that are merged. Latent attention is one key head of compressed
// vectors.
#pragma once

#include "core/execute/gpu/arithmetic/host_device.h"

namespace moorage::core::gpu {

// Consecutive tokens of one stream that a block computes together.
struct attend_tile {
    uint32_t token, count;
};

struct attend_shape {
    uint32_t heads, kv_heads, head_dim, value_dim;  // head_dim even
    uint32_t key_stride, value_stride;              // values from one position to the next
    uint32_t context;                               // positions of a stream's cache
    uint32_t window;                                // 0: none
    uint32_t heads_at_once;  // query heads of a block; they share the key head
    uint32_t splits;         // number of splits of the context
    float scale;
    bool values_in_keys;  // the values are the first value_dim of each key

    MOORAGE_HOST_DEVICE uint32_t group() const { return heads / kv_heads; }
    MOORAGE_HOST_DEVICE uint32_t head_blocks() const { return ceil_div(group(), heads_at_once); }
    MOORAGE_HOST_DEVICE uint32_t first_position(uint32_t position) const {
        return window != 0 && position + 1 > window ? position + 1 - window : 0;
    }
};

constexpr uint32_t attend_chunk = 32;  // positions at a time, one for each lane

// Blocks: x tiles, y kv_heads * head_blocks, z splits. rows_max: (token, head) pairs of a block.
// vectors: values that a thread sums, in steps of the block's threads. Cache: type of the cached
// numbers.
template <class Cache, uint32_t rows_max, uint32_t vectors>
struct attend_kernel {
    static constexpr uint32_t threads = 128;
    static constexpr uint32_t warps = threads / lanes;
    static constexpr uint32_t rows_of_warp = (rows_max + warps - 1) / warps;
    attend_shape shape;
    const attend_tile *tiles;
    const uint32_t *streams, *positions;  // [tokens]
    const float *query;                   // [tokens, heads * head_dim]
    const Cache *keys, *values;           // [streams, context, stride]
    const float *sinks;                   // [heads] or null
    float *output;                        // [tokens, heads * value_dim]
    // For each split [tokens, heads, splits]: its largest score and its sum, and unnormalised
    // values.
    float *partial, *partial_values;

    // In shared memory rows are longer. So lanes, which have a row each, meet different banks. Rows
    // of whole 16 bytes stay so.
    MOORAGE_HOST_DEVICE static uint32_t padded(uint32_t dim) {
        return dim + cached<Cache>::padding;
    }
    MOORAGE_HOST_DEVICE static uint32_t shared_bytes_of(const attend_shape &of) {
        const uint32_t value_words = of.values_in_keys ? 0 : attend_chunk * padded(of.value_dim);
        return static_cast<uint32_t>(before_keys(of.head_dim) * sizeof(float) +
                                     (attend_chunk * padded(of.head_dim) + value_words) *
                                         sizeof(Cache));
    }
    // Size of queries, weights and factors, in whole 16 bytes.
    MOORAGE_HOST_DEVICE static uint32_t before_keys(uint32_t head_dim) {
        return ceil_div(rows_max * (head_dim + attend_chunk + 1), 4) * 4;
    }

    struct place {
        uint32_t token, head;
        bool valid;
    };
    MOORAGE_HOST_DEVICE place place_of(const attend_tile &tile, uint32_t block_y,
                                       uint32_t row) const {
        const uint32_t in_group =
            block_y % shape.head_blocks() * shape.heads_at_once + row % shape.heads_at_once;
        const uint32_t kv_head = block_y / shape.head_blocks();
        const uint32_t token = row / shape.heads_at_once;
        return {tile.token + token, kv_head * shape.group() + in_group,
                token < tile.count && in_group < shape.group()};
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const attend_tile tile = tiles[team.block_x];
        float *own = reinterpret_cast<float *>(team.shared);
        areas at{own, own + rows_max * shape.head_dim, nullptr, nullptr, nullptr};
        at.factors = at.weights + rows_max * attend_chunk;
        at.keys = reinterpret_cast<Cache *>(own + before_keys(shape.head_dim));
        at.values =
            shape.values_in_keys ? at.keys : at.keys + attend_chunk * padded(shape.head_dim);
        load_queries(team, tile, at.query);
        typename Team::template local<numbers<float, rows_of_warp>> most(team), sums(team);
        typename Team::template local<numbers<float, rows_max * vectors>> totals(team);
        team.each([&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                most[thread].at[i] = -INFINITY;
                sums[thread].at[i] = 0;
            }
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_max * vectors; ++i) totals[thread].at[i] = 0;
        });
        const uint32_t begin = shape.first_position(positions[tile.token]);
        const uint32_t end = positions[tile.token + tile.count - 1] + 1;
        const uint32_t chunks = ceil_div(end - begin, attend_chunk);
        const uint32_t first = chunks * team.block_z / shape.splits;
        const uint32_t last = chunks * (team.block_z + 1) / shape.splits;
        for (uint32_t chunk = first; chunk < last; ++chunk) {
            const uint32_t from = begin + chunk * attend_chunk;
            const uint32_t count = smaller(attend_chunk, end - from);
            load_cache(team, tile, from, count, at);
            score(team, tile, from, count, at, most, sums);
            add_values(team, count, at, totals);
        }
        store(team, tile, at, most, sums, totals);
    }

private:
    struct areas {
        float *query, *weights, *factors;  // [rows, head_dim], [chunk, rows], [rows]
        Cache *keys, *values;              // [chunk, padded]
    };

    // The place of value `d` of a row's query. null: the row has none.
    MOORAGE_HOST_DEVICE const float *query_at(const place &row, uint32_t d) const {
        const uint64_t head = static_cast<uint64_t>(row.token) * shape.heads + row.head;
        return row.valid ? query + head * shape.head_dim + d : nullptr;
    }
    template <class Team>
    MOORAGE_HOST_DEVICE void load_queries(Team &team, const attend_tile &tile, float *out) const {
        // They arrive with the first keys: load_cache() waits for all.
        team.each([&](uint32_t thread) {
            if (shape.head_dim % 4 == 0 && aligned16(query)) {
                const uint32_t fours = shape.head_dim / 4;
                MOORAGE_UNROLL_BY_EIGHT
                for (uint32_t i = thread; i < rows_max * fours; i += threads) {
                    const place row = place_of(tile, team.block_y, i / fours);
                    const float *from = query_at(row, i % fours * 4);
                    floats4 four = from ? load4(from) : floats4{};
                    MOORAGE_UNROLL
                    for (uint32_t n = 0; n < 4; ++n) four.at[n] *= shape.scale;
                    *reinterpret_cast<floats4 *>(out + i * 4) = four;
                }
                return;
            }
            for (uint32_t i = thread; i < rows_max * shape.head_dim; i += threads) {
                const place row = place_of(tile, team.block_y, i / shape.head_dim);
                const float *from = query_at(row, i % shape.head_dim);
                out[i] = from ? *from * shape.scale : 0;
            }
        });
    }

    // Copies `count` rows of `dim` values, `stride` apart, to rows of padded(dim).
    struct rows_of_cache {
        const Cache *from;
        uint32_t stride, dim, count;
        Cache *to;
        static constexpr uint32_t width = 16 / sizeof(Cache);
        MOORAGE_HOST_DEVICE bool by_words() const {
            return dim % width == 0 && stride % width == 0 && aligned16(from);
        }
        MOORAGE_HOST_DEVICE uint32_t words() const { return count * (dim / width); }
        MOORAGE_HOST_DEVICE words16 read(uint32_t i) const {
            const uint32_t row = i / (dim / width), word = i % (dim / width);
            return load16(from + static_cast<uint64_t>(row) * stride + word * width);
        }
        MOORAGE_HOST_DEVICE void write(uint32_t i, const words16 &word) const {
            const uint32_t row = i / (dim / width);
            store16(to + row * padded(dim) + i % (dim / width) * width, word);
        }
        MOORAGE_HOST_DEVICE void copy_singly(uint32_t thread) const {
            for (uint32_t i = thread; i < count * dim; i += threads)
                to[i / dim * padded(dim) + i % dim] =
                    from[static_cast<uint64_t>(i / dim) * stride + i % dim];
        }
    };
    // Copies keys, and values if they are stored apart. A thread waits for all its reads at once.
    MOORAGE_HOST_DEVICE static void copy_rows(uint32_t thread, const rows_of_cache &keys,
                                              const rows_of_cache &values) {
        if (!keys.by_words() || (values.count != 0 && !values.by_words())) {
            keys.copy_singly(thread);
            values.copy_singly(thread);
            return;
        }
        constexpr uint32_t at_once = 8;
        const uint32_t of_keys = keys.words();
        const uint32_t all = of_keys + (values.count != 0 ? values.words() : 0);
        for (uint32_t begin = thread; begin < all; begin += at_once * threads) {
            words16 words[at_once];
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < at_once; ++n) {
                const uint32_t i = begin + n * threads;
                if (i < all) words[n] = i < of_keys ? keys.read(i) : values.read(i - of_keys);
            }
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < at_once; ++n) {
                const uint32_t i = begin + n * threads;
                if (i >= all) continue;
                i < of_keys ? keys.write(i, words[n]) : values.write(i - of_keys, words[n]);
            }
        }
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void load_cache(Team &team, const attend_tile &tile, uint32_t from,
                                        uint32_t count, const areas &at) const {
        const uint64_t position = static_cast<uint64_t>(streams[tile.token]) * shape.context + from;
        const uint32_t kv_head = team.block_y / shape.head_blocks();
        const rows_of_cache of_keys{keys + position * shape.key_stride + kv_head * shape.head_dim,
                                    shape.key_stride, shape.head_dim, count, at.keys};
        const rows_of_cache of_values{
            values + position * shape.value_stride + kv_head * shape.value_dim, shape.value_stride,
            shape.value_dim, shape.values_in_keys ? 0 : count, at.values};
        team.phase([&](uint32_t thread) { copy_rows(thread, of_keys, of_values); });
    }

    // Adds the products of a key and the warp's queries, 16 bytes of the key at a time.
    template <class Row>
    MOORAGE_HOST_DEVICE void multiply_wide(const Cache *key, Row &&row_of_query,
                                           numbers<float, rows_of_warp> &own) const {
        constexpr uint32_t wide = cached<Cache>::wide;
        MOORAGE_UNROLL_BY_FOUR
        for (uint32_t d = 0; d < shape.head_dim; d += wide) {
            float values[wide];
            cached<Cache>::widen(load16(key + d), values);
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                MOORAGE_UNROLL
                for (uint32_t n = 0; n < wide; n += 4) {
                    const floats4 q = load4(row_of_query(i) + d + n);
                    MOORAGE_UNROLL
                    for (uint32_t m = 0; m < 4; ++m) own.at[i] += q.at[m] * values[n + m];
                }
            }
        }
    }

    // The scores of the chunk, one position a lane, and the running largest and sum of the softmax.
    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void score(Team &team, const attend_tile &tile, uint32_t from,
                                   uint32_t count, const areas &at, Local &most,
                                   Local &sums) const {
        typename Team::template local<numbers<float, rows_of_warp>> scores(team), shifted(team);
        team.each([&](uint32_t thread) {
            const uint32_t lane = thread % lanes, warp = thread / lanes;
            numbers<float, rows_of_warp> &own = scores[thread];
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) own.at[i] = 0;
            const Cache *key = at.keys + smaller(lane, count - 1) * padded(shape.head_dim);
            const auto row_of_query = [&](uint32_t i) {
                return at.query + smaller(i * warps + warp, rows_max - 1) * shape.head_dim;
            };
            if (shape.head_dim % 8 == 0)
                multiply_wide(key, row_of_query, own);
            else
                for (uint32_t d = 0; d < shape.head_dim; d += 2) {
                    float x, y;
                    cached<Cache>::two(key + d, x, y);
                    MOORAGE_UNROLL
                    for (uint32_t i = 0; i < rows_of_warp; ++i) {
                        const float *q = row_of_query(i) + d;
                        own.at[i] += q[0] * x + q[1] * y;
                    }
                }
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                const place row = place_of(tile, team.block_y, i * warps + warp);
                const uint32_t position = from + lane;
                const bool seen = row.valid && lane < count && position <= positions[row.token] &&
                                  position >= shape.first_position(positions[row.token]);
                if (!seen) own.at[i] = -INFINITY;
                shifted[thread].at[i] = own.at[i];
            }
        });
        team.each_warp([&](uint32_t warp) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                team.warp_most(warp, [&](uint32_t t) -> float & { return shifted[t].at[i]; });
                team.each_lane(warp, [&](uint32_t thread) {
                    const float before = most[thread].at[i];
                    const float now = larger(before, shifted[thread].at[i]);
                    const bool none = now == -INFINITY;
                    const float weight = none ? 0 : expf(scores[thread].at[i] - now);
                    const float factor = none ? 1 : expf(before - now);
                    most[thread].at[i] = now;
                    sums[thread].at[i] *= factor;
                    shifted[thread].at[i] = weight;
                    const uint32_t row = i * warps + warp, lane = thread % lanes;
                    if (row >= rows_max) return;
                    at.weights[lane * rows_max + row] = weight;
                    if (lane == 0) at.factors[row] = factor;
                });
                team.warp_sum(warp, [&](uint32_t t) -> float & { return shifted[t].at[i]; });
                team.each_lane(
                    warp, [&](uint32_t thread) { sums[thread].at[i] += shifted[thread].at[i]; });
            }
        });
        team.barrier();
    }

    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void add_values(Team &team, uint32_t count, const areas &at,
                                        Local &totals) const {
        const uint32_t stride = padded(shape.values_in_keys ? shape.head_dim : shape.value_dim);
        team.phase([&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; ++row) {
                const float factor = at.factors[row];
                MOORAGE_UNROLL
                for (uint32_t n = 0; n < vectors; ++n)
                    totals[thread].at[row * vectors + n] *= factor;
            }
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < vectors; ++n) {
                const uint32_t column = thread + n * threads;
                if (column >= shape.value_dim) continue;
                MOORAGE_UNROLL_BY_FOUR
                for (uint32_t p = 0; p < count; ++p) {
                    const float value = cached<Cache>::at(at.values + p * stride + column);
                    add_weighed(at.weights + p * rows_max, value, n, totals[thread]);
                }
            }
        });
    }

    // Adds a value times the weights of its position [rows_max].
    MOORAGE_HOST_DEVICE static void add_weighed(const float *weights, float value, uint32_t n,
                                                numbers<float, rows_max * vectors> &totals) {
        if constexpr (rows_max % 4 == 0) {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; row += 4) {
                const floats4 four = load4(weights + row);
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < 4; ++i)
                    totals.at[(row + i) * vectors + n] += four.at[i] * value;
            }
        } else {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; ++row)
                totals.at[row * vectors + n] += weights[row] * value;
        }
    }

    template <class Team, class Local, class Totals>
    MOORAGE_HOST_DEVICE void store(Team &team, const attend_tile &tile, const areas &at,
                                   Local &most, Local &sums, Totals &totals) const {
        // Gives the largest score and the sum of each row to all threads, through shared memory.
        team.phase([&](uint32_t thread) {
            if (thread % lanes != 0) return;
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                const uint32_t row = i * warps + thread / lanes;
                if (row >= rows_max) continue;
                at.weights[2 * row] = most[thread].at[i];
                at.weights[2 * row + 1] = sums[thread].at[i];
            }
        });
        team.each([&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; ++row) {
                const place to = place_of(tile, team.block_y, row);
                if (!to.valid) continue;
                const uint64_t head = static_cast<uint64_t>(to.token) * shape.heads + to.head;
                const float top = at.weights[2 * row], sum = at.weights[2 * row + 1];
                const uint64_t split = head * shape.splits + team.block_z;
                float *values_out = shape.splits == 1 ? output + head * shape.value_dim
                                                      : partial_values + split * shape.value_dim;
                float factor = 1;
                if (shape.splits == 1) {
                    const float sink = sinks ? sinks[to.head] : -INFINITY;
                    const float all = larger(top, sink);
                    factor = expf(top - all) / (sum * expf(top - all) + expf(sink - all));
                } else if (thread == 0) {
                    partial[2 * split] = top;
                    partial[2 * split + 1] = sum;
                }
                MOORAGE_UNROLL
                for (uint32_t n = 0; n < vectors; ++n) {
                    const uint32_t column = thread + n * threads;
                    if (column < shape.value_dim)
                        values_out[column] = totals[thread].at[row * vectors + n] * factor;
                }
            }
        });
    }
};

// Joins the splits of one (head, token). Blocks: x heads, y tokens, z of so many values each.
struct merge_kernel {
    static constexpr uint32_t threads = 128;
    uint32_t heads, value_dim, splits;
    const float *sinks, *partial, *partial_values;
    float *output;

    MOORAGE_HOST_DEVICE static uint32_t shared_bytes_of(uint32_t splits) {
        return 3 * splits * static_cast<uint32_t>(sizeof(float));
    }
    MOORAGE_HOST_DEVICE static uint32_t blocks_of(uint32_t value_dim) {
        return ceil_div(value_dim, threads);
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const uint64_t head = static_cast<uint64_t>(team.block_y) * heads + team.block_x;
        const float *own = partial + head * splits * 2;
        // For each split: its largest score, its sum, and the factor of its values.
        float *tops = reinterpret_cast<float *>(team.shared), *sums = tops + splits;
        float *factors = sums + splits;
        team.phase([&](uint32_t thread) {
            for (uint32_t s = thread; s < splits; s += threads) {
                tops[s] = own[2 * s];
                sums[s] = own[2 * s + 1];
            }
        });
        const float sink = sinks ? sinks[team.block_x] : -INFINITY;
        float top = sink;
        for (uint32_t s = 0; s < splits; ++s) top = larger(top, tops[s]);
        team.phase([&](uint32_t thread) {
            for (uint32_t s = thread; s < splits; s += threads) factors[s] = expf(tops[s] - top);
        });
        team.each([&](uint32_t thread) {
            const uint32_t c = team.block_z * threads + thread;
            if (c >= value_dim) return;
            float sum = expf(sink - top), value = 0;
            for (uint32_t s = 0; s < splits; ++s) sum += sums[s] * factors[s];
            MOORAGE_UNROLL_BY_EIGHT
            for (uint32_t s = 0; s < splits; ++s)
                value += partial_values[(head * splits + s) * value_dim + c] * factors[s];
            output[head * value_dim + c] = value / sum;
        });
    }
};

}  // namespace moorage::core::gpu

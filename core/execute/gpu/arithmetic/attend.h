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
    MOORAGE_HOST_DEVICE static uint32_t shared_bytes_of(const attend_shape &shape) {
        const uint32_t value_words =
            shape.values_in_keys ? 0 : attend_chunk * padded(shape.value_dim);
        return static_cast<uint32_t>(before_keys(shape.head_dim) * sizeof(float) +
                                     (attend_chunk * padded(shape.head_dim) + value_words) *
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
        float *base = reinterpret_cast<float *>(team.shared);
        areas areas{base, base + rows_max * shape.head_dim, nullptr, nullptr, nullptr};
        areas.factors = areas.weights + rows_max * attend_chunk;
        areas.keys = reinterpret_cast<Cache *>(base + before_keys(shape.head_dim));
        areas.values =
            shape.values_in_keys ? areas.keys : areas.keys + attend_chunk * padded(shape.head_dim);
        load_queries(team, tile, areas.query);
        typename Team::template local<numbers<float, rows_of_warp>> most(team), sums(team);
        typename Team::template local<numbers<float, rows_max * vectors>> totals(team);
        team.each([&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                most[thread].value[i] = -INFINITY;
                sums[thread].value[i] = 0;
            }
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_max * vectors; ++i) totals[thread].value[i] = 0;
        });
        const uint32_t begin = shape.first_position(positions[tile.token]);
        const uint32_t end = positions[tile.token + tile.count - 1] + 1;
        const uint32_t chunks = ceil_div(end - begin, attend_chunk);
        const uint32_t first = chunks * team.block_z / shape.splits;
        const uint32_t last = chunks * (team.block_z + 1) / shape.splits;
        for (uint32_t chunk = first; chunk < last; ++chunk) {
            const uint32_t chunk_begin = begin + chunk * attend_chunk;
            const uint32_t count = smaller(attend_chunk, end - chunk_begin);
            load_cache(team, tile, chunk_begin, count, areas);
            score(team, tile, chunk_begin, count, areas, most, sums);
            add_values(team, count, areas, totals);
        }
        store(team, tile, areas, most, sums, totals);
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
    MOORAGE_HOST_DEVICE void load_queries(Team &team, const attend_tile &tile,
                                          float *target) const {
        // They arrive with the first keys: load_cache() waits for all.
        team.each([&](uint32_t thread) {
            if (shape.head_dim % 4 == 0 && aligned16(query)) {
                const uint32_t fours = shape.head_dim / 4;
                MOORAGE_UNROLL_BY_EIGHT
                for (uint32_t i = thread; i < rows_max * fours; i += threads) {
                    const place row = place_of(tile, team.block_y, i / fours);
                    const float *source = query_at(row, i % fours * 4);
                    floats4 four = source ? load4(source) : floats4{};
                    MOORAGE_UNROLL
                    for (uint32_t n = 0; n < 4; ++n) four.value[n] *= shape.scale;
                    *reinterpret_cast<floats4 *>(target + i * 4) = four;
                }
                return;
            }
            for (uint32_t i = thread; i < rows_max * shape.head_dim; i += threads) {
                const place row = place_of(tile, team.block_y, i / shape.head_dim);
                const float *source = query_at(row, i % shape.head_dim);
                target[i] = source ? *source * shape.scale : 0;
            }
        });
    }

    // Copies `count` rows of `dim` values, `stride` apart, to rows of padded(dim).
    struct rows_of_cache {
        const Cache *source;
        uint32_t stride, dim, count;
        Cache *target;
        static constexpr uint32_t width = 16 / sizeof(Cache);
        MOORAGE_HOST_DEVICE bool by_words() const {
            return dim % width == 0 && stride % width == 0 && aligned16(source);
        }
        MOORAGE_HOST_DEVICE uint32_t words() const { return count * (dim / width); }
        MOORAGE_HOST_DEVICE words16 read(uint32_t i) const {
            const uint32_t row = i / (dim / width), word = i % (dim / width);
            return load16(source + static_cast<uint64_t>(row) * stride + word * width);
        }
        MOORAGE_HOST_DEVICE void write(uint32_t i, const words16 &word) const {
            const uint32_t row = i / (dim / width);
            store16(target + row * padded(dim) + i % (dim / width) * width, word);
        }
        MOORAGE_HOST_DEVICE void copy_values(uint32_t thread) const {
            for (uint32_t i = thread; i < count * dim; i += threads)
                target[i / dim * padded(dim) + i % dim] =
                    source[static_cast<uint64_t>(i / dim) * stride + i % dim];
        }
    };
    // Copies keys, and values if they are stored apart. A thread waits for all its reads at once.
    MOORAGE_HOST_DEVICE static void copy_rows(uint32_t thread, const rows_of_cache &keys,
                                              const rows_of_cache &values) {
        if (!keys.by_words() || (values.count != 0 && !values.by_words())) {
            keys.copy_values(thread);
            values.copy_values(thread);
            return;
        }
        constexpr uint32_t at_once = 8;
        const uint32_t key_words = keys.words();
        const uint32_t word_count = key_words + (values.count != 0 ? values.words() : 0);
        for (uint32_t begin = thread; begin < word_count; begin += at_once * threads) {
            words16 words[at_once];
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < at_once; ++n) {
                const uint32_t i = begin + n * threads;
                if (i < word_count)
                    words[n] = i < key_words ? keys.read(i) : values.read(i - key_words);
            }
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < at_once; ++n) {
                const uint32_t i = begin + n * threads;
                if (i >= word_count) continue;
                i < key_words ? keys.write(i, words[n]) : values.write(i - key_words, words[n]);
            }
        }
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void load_cache(Team &team, const attend_tile &tile, uint32_t chunk_begin,
                                        uint32_t count, const areas &areas) const {
        const uint64_t position =
            static_cast<uint64_t>(streams[tile.token]) * shape.context + chunk_begin;
        const uint32_t kv_head = team.block_y / shape.head_blocks();
        const rows_of_cache key_rows{keys + position * shape.key_stride + kv_head * shape.head_dim,
                                     shape.key_stride, shape.head_dim, count, areas.keys};
        const rows_of_cache value_rows{
            values + position * shape.value_stride + kv_head * shape.value_dim, shape.value_stride,
            shape.value_dim, shape.values_in_keys ? 0 : count, areas.values};
        team.phase([&](uint32_t thread) { copy_rows(thread, key_rows, value_rows); });
    }

    // Adds the products of a key and the warp's queries, 16 bytes of the key at a time.
    template <class Row>
    MOORAGE_HOST_DEVICE void multiply_wide(const Cache *key, Row &&row_of_query,
                                           numbers<float, rows_of_warp> &thread_scores) const {
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
                    for (uint32_t m = 0; m < 4; ++m)
                        thread_scores.value[i] += q.value[m] * values[n + m];
                }
            }
        }
    }

    // The scores of the chunk, one position a lane, and the running largest and sum of the softmax.
    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void score(Team &team, const attend_tile &tile, uint32_t chunk_begin,
                                   uint32_t count, const areas &areas, Local &most,
                                   Local &sums) const {
        typename Team::template local<numbers<float, rows_of_warp>> scores(team), shifted(team);
        team.each([&](uint32_t thread) {
            const uint32_t lane = thread % lanes, warp = thread / lanes;
            numbers<float, rows_of_warp> &thread_scores = scores[thread];
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) thread_scores.value[i] = 0;
            const Cache *key = areas.keys + smaller(lane, count - 1) * padded(shape.head_dim);
            const auto row_of_query = [&](uint32_t i) {
                return areas.query + smaller(i * warps + warp, rows_max - 1) * shape.head_dim;
            };
            if (shape.head_dim % 8 == 0)
                multiply_wide(key, row_of_query, thread_scores);
            else
                for (uint32_t d = 0; d < shape.head_dim; d += 2) {
                    float x, y;
                    cached<Cache>::read_pair(key + d, x, y);
                    MOORAGE_UNROLL
                    for (uint32_t i = 0; i < rows_of_warp; ++i) {
                        const float *q = row_of_query(i) + d;
                        thread_scores.value[i] += q[0] * x + q[1] * y;
                    }
                }
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                const place row = place_of(tile, team.block_y, i * warps + warp);
                const uint32_t position = chunk_begin + lane;
                const bool seen = row.valid && lane < count && position <= positions[row.token] &&
                                  position >= shape.first_position(positions[row.token]);
                if (!seen) thread_scores.value[i] = -INFINITY;
                shifted[thread].value[i] = thread_scores.value[i];
            }
        });
        team.each_warp([&](uint32_t warp) {
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                team.warp_most(warp, [&](uint32_t t) -> float & { return shifted[t].value[i]; });
                team.each_lane(warp, [&](uint32_t thread) {
                    const float old_most = most[thread].value[i];
                    const float new_most = larger(old_most, shifted[thread].value[i]);
                    const bool none = new_most == -INFINITY;
                    const float weight = none ? 0 : expf(scores[thread].value[i] - new_most);
                    const float factor = none ? 1 : expf(old_most - new_most);
                    most[thread].value[i] = new_most;
                    sums[thread].value[i] *= factor;
                    shifted[thread].value[i] = weight;
                    const uint32_t row = i * warps + warp, lane = thread % lanes;
                    if (row >= rows_max) return;
                    areas.weights[lane * rows_max + row] = weight;
                    if (lane == 0) areas.factors[row] = factor;
                });
                team.warp_sum(warp, [&](uint32_t t) -> float & { return shifted[t].value[i]; });
                team.each_lane(warp, [&](uint32_t thread) {
                    sums[thread].value[i] += shifted[thread].value[i];
                });
            }
        });
        team.barrier();
    }

    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void add_values(Team &team, uint32_t count, const areas &areas,
                                        Local &totals) const {
        const uint32_t stride = padded(shape.values_in_keys ? shape.head_dim : shape.value_dim);
        team.phase([&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; ++row) {
                const float factor = areas.factors[row];
                MOORAGE_UNROLL
                for (uint32_t n = 0; n < vectors; ++n)
                    totals[thread].value[row * vectors + n] *= factor;
            }
            MOORAGE_UNROLL
            for (uint32_t n = 0; n < vectors; ++n) {
                const uint32_t column = thread + n * threads;
                if (column >= shape.value_dim) continue;
                MOORAGE_UNROLL_BY_FOUR
                for (uint32_t p = 0; p < count; ++p) {
                    const float value = cached<Cache>::to_float(areas.values + p * stride + column);
                    add_weighed(areas.weights + p * rows_max, value, n, totals[thread]);
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
                    totals.value[(row + i) * vectors + n] += four.value[i] * value;
            }
        } else {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; ++row)
                totals.value[row * vectors + n] += weights[row] * value;
        }
    }

    template <class Team, class Local, class Totals>
    MOORAGE_HOST_DEVICE void store(Team &team, const attend_tile &tile, const areas &areas,
                                   Local &most, Local &sums, Totals &totals) const {
        // Gives the largest score and the sum of each row to all threads, through shared memory.
        team.phase([&](uint32_t thread) {
            if (thread % lanes != 0) return;
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < rows_of_warp; ++i) {
                const uint32_t row = i * warps + thread / lanes;
                if (row >= rows_max) continue;
                areas.weights[2 * row] = most[thread].value[i];
                areas.weights[2 * row + 1] = sums[thread].value[i];
            }
        });
        team.each([&](uint32_t thread) {
            MOORAGE_UNROLL
            for (uint32_t row = 0; row < rows_max; ++row) {
                const place row_place = place_of(tile, team.block_y, row);
                if (!row_place.valid) continue;
                const uint64_t head =
                    static_cast<uint64_t>(row_place.token) * shape.heads + row_place.head;
                const float top = areas.weights[2 * row], sum = areas.weights[2 * row + 1];
                const uint64_t split = head * shape.splits + team.block_z;
                float *values_out = shape.splits == 1 ? output + head * shape.value_dim
                                                      : partial_values + split * shape.value_dim;
                float factor = 1;
                if (shape.splits == 1) {
                    const float sink = sinks ? sinks[row_place.head] : -INFINITY;
                    const float largest = larger(top, sink);
                    factor =
                        expf(top - largest) / (sum * expf(top - largest) + expf(sink - largest));
                } else if (thread == 0) {
                    partial[2 * split] = top;
                    partial[2 * split + 1] = sum;
                }
                MOORAGE_UNROLL
                for (uint32_t n = 0; n < vectors; ++n) {
                    const uint32_t column = thread + n * threads;
                    if (column < shape.value_dim)
                        values_out[column] = totals[thread].value[row * vectors + n] * factor;
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
        const float *split_sums = partial + head * splits * 2;
        // For each split: its largest score, its sum, and the factor of its values.
        float *tops = reinterpret_cast<float *>(team.shared), *sums = tops + splits;
        float *factors = sums + splits;
        team.phase([&](uint32_t thread) {
            for (uint32_t s = thread; s < splits; s += threads) {
                tops[s] = split_sums[2 * s];
                sums[s] = split_sums[2 * s + 1];
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

// heads.h - the steps between projections and attention: norms of heads, rotation, and writing into
// the caches.
#pragma once

#include "core/execute/gpu/arithmetic/weights_read.h"

namespace moorage::core::gpu {

// Positions of the pass's tokens. All are [tokens] in device memory.
struct token_table {
    const uint32_t *streams, *positions;
    const float *cosines, *sines;  // [tokens, pairs]
    uint32_t pairs;                // rotated pairs of each head
    bool interleaved;
};

// The two values of pair `i`, rotated by its angle. The first is at first_of(i).
struct rotation {
    uint32_t pairs;
    bool interleaved;
    MOORAGE_HOST_DEVICE uint32_t first_of(uint32_t i) const { return interleaved ? 2 * i : i; }
    MOORAGE_HOST_DEVICE uint32_t second_of(uint32_t i) const {
        return interleaved ? 2 * i + 1 : i + pairs;
    }
};

MOORAGE_HOST_DEVICE inline float clipped(float value, float clip) {
    return clip <= 0 ? value : value > clip ? clip : value < -clip ? -clip : value;
}

// Grouped attention. A warp handles a head of one token: first the query heads, then keys, then
// values. Queries are rotated in place. Keys and values go into the caches.
template <class Cache>
struct heads_kernel {
    static constexpr uint32_t threads = 128;
    token_table tokens;
    float *query;              // [tokens, heads * head_dim]
    const float *key, *value;  // [tokens, kv_heads * head_dim]
    Cache *keys, *values;      // [streams, context, kv_heads * head_dim]
    uint32_t heads, kv_heads, head_dim, context;
    const float *query_norm, *key_norm;  // [head_dim]; null: none
    float epsilon, clip;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        typename Team::template local<float> squares(team);
        team.each_warp([&](uint32_t warp) {
            const uint32_t head = team.block_x * (threads / lanes) + warp;
            if (head >= heads + 2 * kv_heads) return;
            process_head(team, head, warp, squares);
        });
    }

private:
    template <class Team, class Local>
    MOORAGE_HOST_DEVICE void process_head(Team &team, uint32_t head, uint32_t warp,
                                          Local &squares) const {
        const uint32_t token = team.block_y;
        const bool is_query = head < heads, is_key = !is_query && head < heads + kv_heads;
        const uint32_t kind_head = is_query ? head : (head - heads) % kv_heads;
        const uint64_t offset =
            (static_cast<uint64_t>(token) * (is_query ? heads : kv_heads) + kind_head) * head_dim;
        const float *source = (is_query ? query : is_key ? key : value) + offset;
        const uint64_t cache_offset =
            (static_cast<uint64_t>(tokens.streams[token]) * context + tokens.positions[token]) *
                kv_heads * head_dim +
            static_cast<uint64_t>(kind_head) * head_dim;
        Cache *cached_head = is_query ? nullptr : (is_key ? keys : values) + cache_offset;
        if (!is_query && !is_key) {
            team.each_lane(warp, [&](uint32_t thread) {
                for (uint32_t c = thread % lanes; c < head_dim; c += lanes)
                    cached_head[c] = cached<Cache>::from_float(clipped(source[c], clip));
            });
            return;
        }
        const float *norm = is_query ? query_norm : key_norm;
        float factor = 1;
        if (norm) {
            team.each_lane(warp, [&](uint32_t thread) {
                squares[thread] = 0;
                for (uint32_t c = thread % lanes; c < head_dim; c += lanes)
                    squares[thread] += source[c] * source[c];
            });
            team.warp_sum(warp, [&](uint32_t t) -> float & { return squares[t]; });
            factor = 1 / sqrtf(squares[warp * lanes] / static_cast<float>(head_dim) + epsilon);
        }
        float *turned = is_query ? query + offset : nullptr;
        team.each_lane(warp, [&](uint32_t thread) {
            const auto read = [&](uint32_t c) {
                return clipped(norm ? source[c] * factor * norm[c] : source[c], clip);
            };
            const auto write = [&](uint32_t c, float x) {
                if (turned)
                    turned[c] = x;
                else
                    cached_head[c] = cached<Cache>::from_float(x);
            };
            const rotation turn{tokens.pairs, tokens.interleaved};
            for (uint32_t i = thread % lanes; i < tokens.pairs; i += lanes) {
                const float x = read(turn.first_of(i)), y = read(turn.second_of(i));
                const uint64_t angle = static_cast<uint64_t>(token) * tokens.pairs + i;
                const float cosine = tokens.cosines[angle], sine = tokens.sines[angle];
                write(turn.first_of(i), x * cosine - y * sine);
                write(turn.second_of(i), y * cosine + x * sine);
            }
            for (uint32_t c = 2 * tokens.pairs + thread % lanes; c < head_dim; c += lanes)
                write(c, read(c));
        });
    }
};

// Latent attention, the compressed vector. The first `rank` values are normalised, the rest is
// rotated, and all go into the cache. A block a token.
template <class Cache>
struct latent_kernel {
    static constexpr uint32_t threads = 128;
    token_table tokens;
    const float *compressed;  // [tokens, rank + 2 * pairs]
    const float *norm;        // [rank]
    float epsilon;
    uint32_t rank, context;
    Cache *cache;  // [streams, context, rank + 2 * pairs]

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const uint32_t token = team.block_x, width = rank + 2 * tokens.pairs;
        const float *source = compressed + static_cast<uint64_t>(token) * width;
        Cache *target = cache + (static_cast<uint64_t>(tokens.streams[token]) * context +
                                 tokens.positions[token]) *
                                    width;
        typename Team::template local<float> squares(team);
        team.each([&](uint32_t thread) {
            squares[thread] = 0;
            for (uint32_t c = thread; c < rank; c += threads)
                squares[thread] += source[c] * source[c];
        });
        const float sum = team.block_sum([&](uint32_t t) -> float & { return squares[t]; });
        const float factor = 1 / sqrtf(sum / static_cast<float>(rank) + epsilon);
        team.each([&](uint32_t thread) {
            for (uint32_t c = thread; c < rank; c += threads)
                target[c] = cached<Cache>::from_float(source[c] * factor * norm[c]);
            const rotation turn{tokens.pairs, tokens.interleaved};
            for (uint32_t i = thread; i < tokens.pairs; i += threads) {
                const float x = source[rank + turn.first_of(i)],
                            y = source[rank + turn.second_of(i)];
                const uint64_t angle = static_cast<uint64_t>(token) * tokens.pairs + i;
                const float cosine = tokens.cosines[angle], sine = tokens.sines[angle];
                target[rank + turn.first_of(i)] = cached<Cache>::from_float(x * cosine - y * sine);
                target[rank + turn.second_of(i)] = cached<Cache>::from_float(y * cosine + x * sine);
            }
        });
    }
};

// The rotated rest of a query head, behind its part in the space of the compressed vectors.
MOORAGE_HOST_DEVICE inline void rotate_rest(const token_table &tokens, uint32_t token,
                                            const float *source, float *target, uint32_t thread,
                                            uint32_t threads) {
    const rotation turn{tokens.pairs, tokens.interleaved};
    for (uint32_t i = thread; i < tokens.pairs; i += threads) {
        const float x = source[turn.first_of(i)], y = source[turn.second_of(i)];
        const uint64_t angle = static_cast<uint64_t>(token) * tokens.pairs + i;
        const float cosine = tokens.cosines[angle], sine = tokens.sines[angle];
        target[turn.first_of(i)] = x * cosine - y * sine;
        target[turn.second_of(i)] = y * cosine + x * sine;
    }
}
// Only the rotation, if products make the part before it. A block a token.
struct turn_rest_kernel {
    static constexpr uint32_t threads = 128;
    token_table tokens;
    const float *query;  // [tokens, heads * (nope + 2 * pairs)]
    uint32_t heads, nope, rank;
    float *output;  // [tokens, heads * (rank + 2 * pairs)]

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const uint64_t first = static_cast<uint64_t>(team.block_x) * heads;
        team.each([&](uint32_t thread) {
            for (uint32_t head = 0; head < heads; ++head)
                rotate_rest(
                    tokens, team.block_x, query + (first + head) * (nope + 2 * tokens.pairs) + nope,
                    output + (first + head) * (rank + 2 * tokens.pairs) + rank, thread, threads);
        });
    }
};

// Latent attention, a query head in the space of the compressed vectors. Its part without rotation
// is multiplied with the rows of kv_b that make this head's keys. Its rotated part follows. A block
// (head, token, slice of the columns). Groups of threads take every n-th row, and their sums meet
// in shared memory.
template <weight_type type>
struct absorb_kernel {
    static constexpr uint32_t threads = 256, slices = 4;
    static constexpr uint32_t width = unit_values<type>;
    static constexpr uint32_t shared_bytes = threads * width * sizeof(float);
    token_table tokens;
    const float *query;  // [tokens, heads * (nope + 2 * pairs)]
    matrix kv_b;         // [heads * (nope + value), rank]
    uint32_t heads, nope, value_dim;
    float *output;  // [tokens, heads * (rank + 2 * pairs)]

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const uint32_t head = team.block_x, token = team.block_y, rank = kv_b.columns;
        const uint64_t row = static_cast<uint64_t>(token) * heads + head;
        const float *query_row = query + row * (nope + 2 * tokens.pairs);
        float *output_row = output + row * (rank + 2 * tokens.pairs);
        // Whole spans of columns, counted in units.
        const uint32_t slice_spans = ceil_div(ceil_div(rank, span_columns<type>), slices);
        const uint32_t begin = smaller(team.block_z * slice_spans * span_columns<type>, rank);
        const uint32_t columns = smaller(slice_spans * span_columns<type>, rank - begin);
        const uint32_t units = columns / width, first = begin / width;
        float *partial = reinterpret_cast<float *>(team.shared);  // [groups, columns]
        const bool by_units = rank % span_columns<type> == 0 && units != 0 && units <= threads &&
                              is_aligned<type>(row_of<type>(kv_b, 0)) &&
                              kv_b.row_bytes % reader<type>::alignment == 0;
        const uint32_t groups = by_units ? threads / units : 0;
        team.phase([&](uint32_t thread) {
            if (by_units && thread / units < groups)
                add_rows(head, thread / units, groups, first, thread % units, query_row,
                         partial + thread / units * columns);
        });
        team.each([&](uint32_t thread) {
            for (uint32_t c = thread; c < columns; c += threads) {
                float sum = 0;
                for (uint32_t group = 0; group < groups; ++group)
                    sum += partial[group * columns + c];
                output_row[begin + c] = by_units ? sum : sum_column(head, query_row, begin + c);
            }
            if (team.block_z == 0)
                rotate_rest(tokens, token, query_row + nope, output_row + rank, thread, threads);
        });
    }

private:
    // Adds a unit's columns of the group's rows. `first_unit`: the first unit of the slice.
    MOORAGE_HOST_DEVICE void add_rows(uint32_t head, uint32_t group, uint32_t groups,
                                      uint32_t first_unit, uint32_t unit, const float *query_row,
                                      float *sums_out) const {
        const uint32_t first = head * (nope + value_dim);
        float sums[width] = {};
        MOORAGE_UNROLL_BY_FOUR
        for (uint32_t d = group; d < nope; d += groups) {
            floats4 values[width / 4];
            read_unit<type>(row_of<type>(kv_b, first + d), first_unit + unit, values);
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < width; ++i)
                sums[i] += query_row[d] * values[i / 4].value[i % 4];
        }
        const uint32_t column = column_of_unit<type>(unit);
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < width; ++i)
            sums_out[column + i / 4 * reader<type>::apart + i % 4] = sums[i];
    }
    MOORAGE_HOST_DEVICE float sum_column(uint32_t head, const float *query_row,
                                         uint32_t column) const {
        const uint32_t first = head * (nope + value_dim);
        float sum = 0;
        for (uint32_t d = 0; d < nope; ++d)
            sum += query_row[d] * read_single<type>(row_of<type>(kv_b, first + d), column);
        return sum;
    }
};

}  // namespace moorage::core::gpu

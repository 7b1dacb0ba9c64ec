// tokens.h - operations on a token's whole vector: embedding, sums of experts, norms.
#pragma once

#include "core/execute/gpu/arithmetic/weights_read.h"

namespace moorage::core::gpu {

// output[t] = multiplier * embedding[ids[t]]. A block a token.
struct embed_kernel {
    static constexpr uint32_t threads = 256;
    matrix embedding;
    const uint32_t *ids;
    float *output;
    float multiplier;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        team.each([&](uint32_t thread) {
            const uint32_t id = ids[team.block_x];
            float *target = output + static_cast<uint64_t>(team.block_x) * embedding.columns;
            for (uint32_t c = thread; c < embedding.columns; c += threads)
                target[c] = multiplier * weight_of(embedding, id, c);
        });
    }
};

// state[t] = source_state[t] + multiplier * (sum over ranks of weight * experts[place] + shared *
// sigmoid(gate)), then output[r] = norm(state[rows[r]]). A block a row of the output. Either half
// may be missing. Ranks whose place is no_place are left out.
constexpr uint32_t no_place = UINT32_MAX;
struct combine_kernel {
    static constexpr uint32_t threads = 512;
    uint32_t width;
    float *state;               // [.., width]
    const float *source_state;  // the same; null: the state itself
    // Outputs of experts [assignments, width]; places [tokens, ranks]: the row of each rank.
    const float *experts;
    const uint32_t *places;
    const float *weights;  // [tokens, ranks]
    uint32_t ranks;        // 0: none
    const float *shared;   // [tokens, width]; null: none
    const float *gate;     // [tokens] before the sigmoid; null: 1
    float multiplier;
    const float *norm_weight, *norm_bias;  // bias: layer norm; weight null: no norm
    bool layer_norm;
    float epsilon;
    const uint32_t *rows;  // the row of state for each row of the output; null: the same row
    float *output;

    // Columns that a thread works on at once. It waits for their values together.
    static constexpr uint32_t at_once = 4;

    // The sums to add to columns begin + i * threads, as far as these columns exist.
    MOORAGE_HOST_DEVICE numbers<float, at_once> sum_additions(uint32_t token,
                                                              uint32_t begin) const {
        numbers<float, at_once> sums{};
        const auto column = [&](uint32_t i) {
            return begin + i * threads < width ? begin + i * threads : begin;
        };
        MOORAGE_UNROLL_BY_FOUR
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            const uint64_t choice = static_cast<uint64_t>(token) * ranks + rank;
            const uint32_t place = places[choice];
            const float weight = weights[choice];
            const bool dropped = place == no_place;
            const float *row = experts + static_cast<uint64_t>(dropped ? 0 : place) * width;
            MOORAGE_UNROLL
            for (uint32_t i = 0; i < at_once; ++i) {
                // A row that nobody has written is not read.
                const float value = dropped ? 0 : row[column(i)];
                sums.value[i] = dropped ? sums.value[i] : sums.value[i] + weight * value;
            }
        }
        if (!shared) return sums;
        // 0, unless the logit is not finite: the sigmoid would hide that.
        const float odd = gate ? gate[token] - gate[token] : 0;
        const float factor = gate ? sigmoid(gate[token]) + odd : 1;
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < at_once; ++i)
            sums.value[i] += factor * shared[static_cast<uint64_t>(token) * width + column(i)];
        return sums;
    }

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        const uint32_t token = rows ? rows[team.block_x] : team.block_x;
        float *target_state = state + static_cast<uint64_t>(token) * width;
        const float *old_state =
            source_state ? source_state + static_cast<uint64_t>(token) * width : target_state;
        typename Team::template local<float> first(team), second(team);
        team.each([&](uint32_t thread) {
            first[thread] = second[thread] = 0;
            for (uint32_t begin = thread; begin < width; begin += at_once * threads) {
                const bool changes = ranks || shared || source_state;
                numbers<float, at_once> additions{};
                if (changes) additions = sum_additions(token, begin);
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < at_once; ++i) {
                    const uint32_t c = begin + i * threads;
                    if (c >= width) continue;
                    const float value =
                        changes ? old_state[c] + multiplier * additions.value[i] : target_state[c];
                    if (changes) target_state[c] = value;
                    first[thread] += value;
                }
            }
        });
        if (!norm_weight) return;
        float mean = 0;
        if (layer_norm)
            mean = team.block_sum([&](uint32_t t) -> float & { return first[t]; }) /
                   static_cast<float>(width);
        team.each([&](uint32_t thread) {
            MOORAGE_UNROLL_BY_FOUR
            for (uint32_t c = thread; c < width; c += threads)
                second[thread] += (target_state[c] - mean) * (target_state[c] - mean);
        });
        const float squares = team.block_sum([&](uint32_t t) -> float & { return second[t]; });
        const float factor = 1 / sqrtf(squares / static_cast<float>(width) + epsilon);
        team.each([&](uint32_t thread) {
            float *target = output + static_cast<uint64_t>(team.block_x) * width;
            MOORAGE_UNROLL_BY_FOUR
            for (uint32_t c = thread; c < width; c += threads)
                target[c] = (target_state[c] - mean) * factor * norm_weight[c] +
                            (norm_bias ? norm_bias[c] : 0);
        });
    }
};

// Activations as the sum of two numbers of matrix units: high + low is exact to 16 bits.
struct halve_kernel {
    static constexpr uint32_t threads = 256;
    const float *values;
    uint16_t *high, *low;
    uint64_t count;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        team.each([&](uint32_t thread) {
            const uint64_t i = static_cast<uint64_t>(team.block_x) * threads + thread;
            if (i >= count) return;
            halve(values[i], high[i], low[i]);
        });
    }
};

// Copies floats to host memory and tells the host: a word there becomes the number of such launches
// so far. The number is kept in device memory, because a recorded launch keeps its arguments. One
// block.
struct tell_kernel {
    static constexpr uint32_t threads = 256;
    static constexpr uint32_t parts_max = 2;
    struct part {
        const float *source;
        float *target;
    };
    part parts[parts_max];  // `target` null: none
    uint64_t count;         // count of each part
    uint32_t *number, *word;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        team.each([&](uint32_t thread) {
            for (const part &part : parts)
                for (uint64_t i = thread; part.target && i < count; i += threads)
                    team.tell(part.target + i, part.source[i]);
        });
        team.barrier();
        team.each([&](uint32_t thread) {
            if (thread != 0) return;
            // Includes what the other threads wrote: the barrier has brought it here.
            team.fence();
            team.tell(word, ++*number);
        });
    }
};

// Copies a table that is small enough to come as an argument to memory. One block.
struct words_kernel {
    static constexpr uint32_t threads = 128;
    static constexpr uint32_t words_max = 512;
    uint32_t words[words_max];
    uint32_t count;
    uint32_t *output;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        team.each([&](uint32_t thread) {
            for (uint32_t i = thread; i < count; i += threads) output[i] = words[i];
        });
    }
};

// output[t, r] += multiplier * bias[r]; blocks: x rows, y tokens.
struct bias_kernel {
    static constexpr uint32_t threads = 256;
    const float *bias;
    float *output;
    uint32_t rows, stride;
    float multiplier;

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        team.each([&](uint32_t thread) {
            const uint32_t row = team.block_x * threads + thread;
            if (row < rows)
                output[static_cast<uint64_t>(team.block_y) * stride + row] +=
                    multiplier * bias[row];
        });
    }
};

}  // namespace moorage::core::gpu

// weights_read.h - rows of weights by units, runs and single values, and one lane's part of a row
// times inputs, for every type of weights.
#pragma once

#include "core/execute/gpu/arithmetic/weight_readers.h"
#include "core/model/model_config.h"

namespace moorage::core::gpu {

// What a lane reads at a time, and the columns that units side by side make up.
template <weight_type type>
inline constexpr uint32_t unit_values = 4 * reader<type>::runs;
template <weight_type type>
inline constexpr uint32_t span_columns = reader<type>::runs *reader<type>::apart;
template <weight_type type>
inline constexpr uint32_t span_units = reader<type>::apart / 4;

template <weight_type type>
MOORAGE_HOST_DEVICE inline stored_row row_of(const matrix &of, uint32_t row) {
    constexpr uint32_t shared = weight_formats[static_cast<size_t>(type)].scale_rows;
    return {of.data + row * of.row_bytes,
            of.scales ? of.scales + row / shared * of.scale_row_bytes : nullptr, of.group_of};
}
// Whether the row is where its format's loads want it.
template <weight_type type>
MOORAGE_HOST_DEVICE inline bool is_aligned(const stored_row &row) {
    return (reinterpret_cast<uintptr_t>(row.values) & (reader<type>::alignment - 1)) == 0;
}

// The number-th unit of an aligned row: run i begins at column
// number / span_units * span_columns + number % span_units * 4 + i * apart.
template <weight_type type>
MOORAGE_HOST_DEVICE inline void read_unit(const stored_row &row, uint32_t number, floats4 *out) {
    using by = reader<type>;
    const uint32_t span = number / span_units<type>, lead = number % span_units<type> * 4;
    if constexpr (requires { by::unit(row, span, lead, out); }) {
        by::unit(row, span, lead, out);
    } else {
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < by::runs; ++i)
            out[i] = by::template run<by::alignment>(row, span, lead, i);
    }
}
// The four columns from `column` on, a multiple of four. Requires: all of their span is there.
template <weight_type type, uint32_t aligned>
MOORAGE_HOST_DEVICE inline floats4 read_run(const stored_row &row, uint32_t column) {
    using by = reader<type>;
    const uint32_t within = column % span_columns<type>;
    return by::template run<aligned>(row, column / span_columns<type>, within % by::apart,
                                     within / by::apart);
}
// One value of a row of any alignment; slow.
template <weight_type type>
MOORAGE_HOST_DEVICE inline float read_single(const stored_row &row, uint32_t column) {
    if constexpr (requires { reader<type>::single(row, column); }) {
        return reader<type>::single(row, column);
    } else {
        const floats4 four = read_run<type, 1>(row, column / 4 * 4);
        float out = four.at[0];
        // By constants, so that it stays in registers.
        MOORAGE_UNROLL
        for (uint32_t n = 1; n < 4; ++n) out = column % 4 == n ? four.at[n] : out;
        return out;
    }
}

// Of a type that is not known before.
template <size_t index = 0>
MOORAGE_HOST_DEVICE inline float weight_of(const matrix &of, uint32_t row, uint32_t column) {
    if constexpr (index < weight_format_count) {
        constexpr weight_type candidate = weight_formats[index].type;
        if (of.type == candidate) return read_single<candidate>(row_of<candidate>(of, row), column);
        return weight_of<index + 1>(of, row, column);
    } else {
        return 0;
    }
}

// Inputs of the tokens a warp works on at a time: token t begins at base + offset[t].
template <uint32_t tokens_max>
struct token_inputs {
    const float *base;
    uint64_t offset[tokens_max];
    uint32_t count;
    bool aligned;  // to 16 bytes, all of them
};

// Adds to sums[t] what `lane` of a warp contributes to the sum over columns [begin, end): every
// 32nd unit, then every 32nd of the values left.
template <weight_type type, uint32_t tokens_max>
MOORAGE_HOST_DEVICE inline void add_lane(const stored_row &row, uint32_t begin, uint32_t end,
                                         uint32_t lane, const token_inputs<tokens_max> &inputs,
                                         float *sums) {
    using by = reader<type>;
    constexpr uint32_t span = span_columns<type>, units = span_units<type>;
    uint32_t done = begin;
    if (inputs.aligned && is_aligned<type>(row) && begin % span == 0) {
        const uint32_t last = end / span * units;
        MOORAGE_UNROLL_BY_FOUR
        for (uint32_t unit = begin / span * units + lane; unit < last; unit += lanes) {
            floats4 values[by::runs];
            read_unit<type>(row, unit, values);
            const uint32_t column = unit / units * span + unit % units * 4;
            MOORAGE_UNROLL
            for (uint32_t token = 0; token < tokens_max; ++token) {
                if (token >= inputs.count) break;
                const float *input = inputs.base + inputs.offset[token] + column;
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < by::runs; ++i) {
                    const floats4 four = load4(input + i * by::apart);
                    MOORAGE_UNROLL
                    for (uint32_t n = 0; n < 4; ++n) sums[token] += values[i].at[n] * four.at[n];
                }
            }
        }
        done = end / span * span;
    }
    for (uint32_t column = done + lane; column < end; column += lanes) {
        const float value = read_single<type>(row, column);
        MOORAGE_UNROLL
        for (uint32_t token = 0; token < tokens_max; ++token)
            if (token < inputs.count)
                sums[token] += value * inputs.base[inputs.offset[token] + column];
    }
}

MOORAGE_HOST_DEVICE inline float activated(activation_kind kind, float limit, float gate,
                                           float up) {
    switch (kind) {
        case activation_kind::silu:
            return gate * sigmoid(gate) * up;
        case activation_kind::gelu:
            return 0.5f * gate * (1 + erff(gate * 0.70710678f)) * up;
        case activation_kind::gelu_tanh:
            return 0.5f * gate *
                   (1 + tanhf(0.79788456f * (gate + 0.044715f * gate * gate * gate))) * up;
        case activation_kind::clamped_swiglu: {
            // 1, unless one of them is no finite number: the limits would hide that.
            const float one = 1 + ((gate - gate) + (up - up));
            const float low = gate < limit ? gate : limit;
            const float both = up > limit ? limit : up < -limit ? -limit : up;
            return (both + one) * low * sigmoid(1.702f * low);
        }
    }
    return 0;
}

}  // namespace moorage::core::gpu

// weights_read.h - rows of weights by units, runs and single values, and one lane's part of rows
// times inputs, for every type of weights.
#pragma once

#include "core/execute/gpu/arithmetic/weight_readers.h"
#include "core/model/model_config.h"

namespace moorage::core::gpu {

// Values that a lane reads at a time, and the columns that neighbouring units make up.
template <weight_type type>
inline constexpr uint32_t unit_values = 4 * reader<type>::runs;
template <weight_type type>
inline constexpr uint32_t span_columns = reader<type>::runs *reader<type>::apart;
template <weight_type type>
inline constexpr uint32_t span_units = reader<type>::apart / 4;

template <weight_type type>
MOORAGE_HOST_DEVICE inline stored_row row_of(const matrix &weights, uint32_t row) {
    constexpr uint32_t shared = weight_formats[static_cast<size_t>(type)].scale_rows;
    return {weights.data + row * weights.row_bytes,
            weights.scales ? weights.scales + row / shared * weights.scale_row_bytes : nullptr,
            weights.group_of};
}
// Whether the row has the alignment that its format's loads need.
template <weight_type type, class Row>
MOORAGE_HOST_DEVICE inline bool is_aligned(const Row &row) {
    return (reinterpret_cast<uintptr_t>(plain(row.values)) & (reader<type>::alignment - 1)) == 0;
}

// The number-th unit of an aligned row. Run i begins at column number / span_units * span_columns +
// number % span_units * 4 + i * apart.
template <weight_type type, class Row>
MOORAGE_HOST_DEVICE inline void read_unit(const Row &row, uint32_t number, floats4 *values) {
    using format_reader = reader<type>;
    const uint32_t span = number / span_units<type>, lead = number % span_units<type> * 4;
    if constexpr (requires { format_reader::unit(row, span, lead, values); }) {
        format_reader::unit(row, span, lead, values);
    } else {
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < format_reader::runs; ++i)
            values[i] = format_reader::template run<format_reader::alignment>(row, span, lead, i);
    }
}
// The four columns from `column` on, a multiple of four. Requires: all of their span is there.
template <weight_type type, uint32_t aligned, class Row>
MOORAGE_HOST_DEVICE inline floats4 read_run(const Row &row, uint32_t column) {
    using format_reader = reader<type>;
    const uint32_t within = column % span_columns<type>;
    return format_reader::template run<aligned>(row, column / span_columns<type>,
                                                within % format_reader::apart,
                                                within / format_reader::apart);
}
// One value of a row of any alignment; slow.
template <weight_type type, class Row>
MOORAGE_HOST_DEVICE inline float read_single(const Row &row, uint32_t column) {
    if constexpr (requires { reader<type>::single(row, column); }) {
        return reader<type>::single(row, column);
    } else {
        const floats4 four = read_run<type, 1>(row, column / 4 * 4);
        float value = four.value[0];
        // Indexed by constants, so that it stays in registers.
        MOORAGE_UNROLL
        for (uint32_t n = 1; n < 4; ++n) value = column % 4 == n ? four.value[n] : value;
        return value;
    }
}

// One value of a type that is only known at run time.
template <size_t index = 0>
MOORAGE_HOST_DEVICE inline float weight_of(const matrix &weights, uint32_t row, uint32_t column) {
    if constexpr (index < weight_format_count) {
        constexpr weight_type candidate = weight_formats[index].type;
        if (weights.type == candidate)
            return read_single<candidate>(row_of<candidate>(weights, row), column);
        return weight_of<index + 1>(weights, row, column);
    } else {
        return 0;
    }
}

// Inputs of the tokens that a warp works on at a time. Token t begins at base + offset[t].
template <uint32_t tokens_max>
struct token_inputs {
    const float *base;
    uint64_t offset[tokens_max];
    uint32_t count;
    bool aligned;  // to 16 bytes, all of them
};

// The number of tokens of a lane. A kernel for one token has one, and the compiler may know that.
template <uint32_t tokens_max>
MOORAGE_HOST_DEVICE inline bool has_token(const token_inputs<tokens_max> &inputs, uint32_t token) {
    return tokens_max == 1 || token < inputs.count;
}
// The columns at which a unit begins.
template <weight_type type>
MOORAGE_HOST_DEVICE inline uint32_t column_of_unit(uint32_t unit) {
    constexpr uint32_t span = span_columns<type>, units = span_units<type>;
    return unit / units * span + unit % units * 4;
}

template <class Row>
inline constexpr bool is_near = std::is_same_v<Row, near_row>;

// Adds to sums[r, t] the contribution of a warp's `lane` to the sum of row r over columns [begin,
// end): every 32nd unit, then every 32nd of the values left. The rows share the inputs that are
// read. All reads of a lane are under way at once.
template <weight_type type, uint32_t tokens_max, uint32_t count, class Row>
MOORAGE_HOST_DEVICE inline void add_rows(const numbers<Row, count> &rows, uint32_t begin,
                                         uint32_t end, uint32_t lane,
                                         const token_inputs<tokens_max> &inputs, float *sums) {
    using format_reader = reader<type>;
    constexpr uint32_t span = span_columns<type>, units = span_units<type>;
    uint32_t done = begin;
    bool aligned = inputs.aligned && begin % span == 0;
    MOORAGE_UNROLL
    for (uint32_t r = 0; r < count; ++r) aligned = aligned && is_aligned<type>(rows.value[r]);
    if (aligned) {
        const uint32_t last = end / span * units;
        const auto add = [&](uint32_t unit) {
            floats4 values[count][format_reader::runs];
            MOORAGE_UNROLL
            for (uint32_t r = 0; r < count; ++r) read_unit<type>(rows.value[r], unit, values[r]);
            MOORAGE_UNROLL
            for (uint32_t token = 0; token < tokens_max; ++token) {
                if (!has_token(inputs, token)) break;
                const float *input =
                    inputs.base + inputs.offset[token] + column_of_unit<type>(unit);
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < format_reader::runs; ++i) {
                    const floats4 four = load4(input + i * format_reader::apart);
                    MOORAGE_UNROLL
                    for (uint32_t n = 0; n < 4; ++n) MOORAGE_UNROLL
                    for (uint32_t r = 0; r < count; ++r)
                        sums[r * tokens_max + token] += values[r][i].value[n] * four.value[n];
                }
            }
        };
        const uint32_t first = begin / span * units + lane;
        if constexpr (is_near<Row>) {
            MOORAGE_UNROLL_BY_TWO
            for (uint32_t unit = first; unit < last; unit += lanes) add(unit);
        } else if constexpr (count * tokens_max == 1) {
            MOORAGE_UNROLL_BY_EIGHT
            for (uint32_t unit = first; unit < last; unit += lanes) add(unit);
        } else {
            MOORAGE_UNROLL_BY_FOUR
            for (uint32_t unit = first; unit < last; unit += lanes) add(unit);
        }
        done = end / span * span;
    }
    for (uint32_t column = done + lane; column < end; column += lanes) {
        numbers<float, count> values;
        MOORAGE_UNROLL
        for (uint32_t r = 0; r < count; ++r)
            values.value[r] = read_single<type>(rows.value[r], column);
        MOORAGE_UNROLL
        for (uint32_t token = 0; token < tokens_max; ++token) {
            if (!has_token(inputs, token)) break;
            const float input = inputs.base[inputs.offset[token] + column];
            MOORAGE_UNROLL
            for (uint32_t r = 0; r < count; ++r)
                sums[r * tokens_max + token] += values.value[r] * input;
        }
    }
}

// Adds to sums[p, t] the contribution of `lane` to the sum of a row over part p of columns [begin,
// end): `step` columns each, fewer in the last. A part's sum has the same bits, whichever parts are
// computed with it. Requires: begin < end, at most `parts` parts.
template <weight_type type, uint32_t tokens_max, uint32_t parts, class Row>
MOORAGE_HOST_DEVICE inline void add_parts(const Row &row, uint32_t begin, uint32_t step,
                                          uint32_t end, uint32_t lane,
                                          const token_inputs<tokens_max> &inputs, float *sums) {
    using format_reader = reader<type>;
    constexpr uint32_t span = span_columns<type>, units = span_units<type>;
    uint32_t done = begin;
    if (inputs.aligned && is_aligned<type>(row) && begin % span == 0 && step % span == 0 &&
        end - begin >= span) {
        const uint32_t first_unit = begin / span * units, part_units = step / span * units;
        const uint32_t last = end / span * units;
        for (uint32_t unit = lane; unit < part_units; unit += lanes) {
            // Loads from device memory come first. Values in shared memory are read when they are
            // needed.
            constexpr uint32_t kept = is_near<Row> ? 1 : parts;
            floats4 values[kept][format_reader::runs];
            const auto read = [&](uint32_t p) {
                const uint32_t unit_index = first_unit + p * part_units + unit;
                read_unit<type>(row, unit_index < last ? unit_index : first_unit, values[p % kept]);
            };
            MOORAGE_UNROLL
            for (uint32_t p = 0; p < parts && kept == parts; ++p) read(p);
            MOORAGE_UNROLL
            for (uint32_t token = 0; token < tokens_max; ++token) {
                if (!has_token(inputs, token)) break;
                MOORAGE_UNROLL
                for (uint32_t p = 0; p < parts; ++p) {
                    if (kept != parts) read(p);
                    const uint32_t unit_index = first_unit + p * part_units + unit;
                    const float *input =
                        inputs.base + inputs.offset[token] +
                        column_of_unit<type>(unit_index < last ? unit_index : first_unit);
                    float sum = sums[p * tokens_max + token];
                    MOORAGE_UNROLL
                    for (uint32_t i = 0; i < format_reader::runs; ++i) {
                        const floats4 four = load4(input + i * format_reader::apart);
                        MOORAGE_UNROLL
                        for (uint32_t n = 0; n < 4; ++n)
                            sum += values[p % kept][i].value[n] * four.value[n];
                    }
                    if (unit_index < last) sums[p * tokens_max + token] = sum;
                }
            }
        }
        done = end / span * span;
    }
    for (uint32_t column = done + lane; column < end; column += lanes) {
        const float value = read_single<type>(row, column);
        const uint32_t part = (column - begin) / step;
        MOORAGE_UNROLL
        for (uint32_t token = 0; token < tokens_max; ++token) {
            if (!has_token(inputs, token)) break;
            const float input = inputs.base[inputs.offset[token] + column];
            MOORAGE_UNROLL
            for (uint32_t p = 0; p < parts; ++p)
                if (p == part) sums[p * tokens_max + token] += value * input;
        }
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
            // 1, unless one of them is not finite: the limits would hide that.
            const float one_or_nan = 1 + ((gate - gate) + (up - up));
            const float clamped_gate = gate < limit ? gate : limit;
            const float clamped_up = up > limit ? limit : up < -limit ? -limit : up;
            return (clamped_up + one_or_nan) * clamped_gate * sigmoid(1.702f * clamped_gate);
        }
    }
    return 0;
}

}  // namespace moorage::core::gpu

// kernels_vector.h - the inner loops of kernels, compiled once per vector instruction set.
//
// Each file of kernels_vector_*.cpp fills one of these tables for every set (Highway) and hands out
// the table of the best one the processor has. The files kernels_*.cpp decide what runs in
// parallel, and in which pieces. This is the same for all sets.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/weights.h"

namespace moorage::core {

// The values of mxfp4 scales: powers of two from 2^-127 up. The last one is NaN.
constexpr std::array<float, 256> E8M0_VALUES = [] {
    std::array<float, 256> values{};
    for (uint32_t exponent = 0; exponent < 256; ++exponent)
        values[exponent] = std::bit_cast<float>(exponent == 0 ? 0x00400000u : exponent << 23);
    return values;
}();

// Up to so many tokens, weights are streamed past the activations. For more tokens they are packed
// into panels. Measured for bf16 [1408, 2048] on a Zen 5 core: 5 tokens 390 us streamed and 450
// packed, 6 tokens 450 and 470, 8 tokens 610 and 540.
constexpr uint32_t STREAM_TOKENS_MAX = 6;

// output[t, r] = (the old output, with add) + start[r] + the dot product of the first part of row
// first + r, + that of the second part, ... in this order; r in [0, count).
struct row_task {
    const matrix *weights;
    uint32_t first, count;  // rows
    uint32_t part;          // columns of a part
    uint32_t tokens;        // 1 .. STREAM_TOKENS_MAX
    const float *inputs[STREAM_TOKENS_MAX];
    const float *start;  // [count] or null
    bool add;
    float *output;  // of row `first`
    size_t output_stride;
};
struct row_kernels {
    void (*multiply)(const row_task &task);
    void (*widen)(const matrix &source, uint32_t row, float *target);
};
const row_kernels &vector_rows();

// Places of the values of a row, for a format in groups.
struct group_row {
    const std::byte *values, *scales;  // scales: if they are stored apart
    const uint32_t *group_of;          // matrix::group_of
};
// Reads columns [begin, begin + count) as floats, by type. Both are multiples of group_values.
struct group_kernels {
    void (*widen[weight_format_count])(const group_row &row, uint32_t begin, uint32_t count,
                                       float *target);
};
const group_kernels &vector_groups();
inline group_row group_row_of(const matrix &weights, uint64_t row) {
    return {weights.data + row * weights.row_bytes, scales_at(weights, row), weights.group_of};
}

// A panel is a transposed and widened block of weights: [columns][width] floats, width rows side by
// side. Input is packed to match: [columns][tokens] for up to `tokens` tokens.
constexpr uint32_t PANEL_WIDTH_MAX = 32;
constexpr uint32_t PANEL_COLUMNS_MAX = 128;
struct panel_source {
    // One half of the width. The two halves may belong to two matrices.
    struct side {
        weight_type type;
        const uint32_t *group_of;  // matrix::group_of
        size_t ahead;  // distance in bytes from a weight to one that is packed soon, for the
                       // prefetch
    };
    side sides[2];
    const std::byte *rows[PANEL_WIDTH_MAX];    // all valid: if there are fewer, repeat one
    const std::byte *scales[PANEL_WIDTH_MAX];  // if they are stored apart
};
// output[t, lane] = or += sum over columns of input[column, t] panel[column, lane]. Columns are in
// ascending order, so a sum may be cut after any multiple of usual_part_unit columns.
struct tile_task {
    const float *panel, *input;
    uint32_t columns, tokens;
    float *output;  // `lanes` floats a token
    size_t output_stride;
    uint32_t lanes;      // wanted lanes of the panel
    bool add;            // to what the output holds
    const float *start;  // [lanes], added first, or null
};
struct panel_kernels {
    const char *products = "floats";       // the kind of products: pair_kernel_name()
    uint32_t width;                        // rows of a panel
    uint32_t tokens;                       // of a tile, at most
    uint32_t tokens_unit = 1;              // all but the last tile should have a multiple of it
    uint32_t columns = PANEL_COLUMNS_MAX;  // of a panel, at most
    // Columns [begin, begin + count); begin a multiple of 32.
    void (*pack)(const panel_source &source, uint32_t begin, uint32_t count, float *panel);
    // inputs: `tokens` pointers to `columns` floats each; target: [columns, tokens].
    void (*pack_input)(const float *const *inputs, uint32_t tokens, uint32_t columns,
                       float *target);
    void (*tile)(const tile_task &task);
    void (*release)() = nullptr;  // called after the last tile of some; may be null
};
const panel_kernels &vector_panels();
// The same for bf16 weights and inputs rounded to bf16, two columns at a time. null: the processor
// has no such products. The width is that of vector_panels().
const panel_kernels *vector_pair_panels();
// For tests. false: pairs are multiplied in vectors. Do not call while kernels run.
void use_matrix_registers(bool enabled);
// Two bf16 numbers as in an input of such panels, the first in the low half.
inline float pair_of_floats(float first, float second) {
    const auto rounded = [](float value) {
        const auto bits = std::bit_cast<uint32_t>(value);
        if (value != value) return bits >> 16 | 0x40u;
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    };
    return std::bit_cast<float>(rounded(first) | rounded(second) << 16);
}

// One key-value head over a stretch of positions.
struct span_task {
    uint32_t heads;  // query heads that share it
    uint32_t head_dim, value_dim;
    float scale;
    const float *query;  // [heads, head_dim]
    const float *keys, *values;
    size_t key_stride, value_stride;
    size_t begin, end;
    // For each head: [value_dim] sums of exp(score - largest) value. The last two floats of the
    // stride hold that largest score and the sum of exp(score - largest).
    float *partial;
    size_t partial_stride;
};
struct attention_kernels {
    void (*span)(const span_task &task);
    // weights[i] = exp(scores[i] - largest), zero outside [begin, end) of [0, count). Returns their
    // sum.
    float (*exponents)(float *scores, uint32_t begin, uint32_t end, uint32_t count, float largest);
    float (*largest)(const float *scores, uint32_t begin, uint32_t end);
    // panel: [positions, width] floats of columns [column, column + width); zeros
    // from `limit` on.
    void (*copy_values)(const float *values, size_t stride, uint32_t positions, uint32_t column,
                        uint32_t limit, float *panel);
    void (*scale)(float *values, uint32_t count, float factor);
};
const attention_kernels &vector_attention();

struct element_kernels {
    // gate[i] = activation(gate[i], up[i])
    void (*activate)(activation_kind kind, float limit, uint32_t count, float *gate,
                     const float *up);
    void (*normalise)(norm_kind kind, const float *weight, const float *bias, float epsilon,
                      uint32_t width, const float *input, float *output);
    // For measuring: the sum of `count` floats, and multiply-adds in registers
    // (flops done).
    float (*read)(const float *values, size_t count);
    double (*multiply_add)(uint64_t rounds, float *sink);
};
const element_kernels &vector_elements();

// The name of the instruction set in use.
std::string vector_target();
// The compiled instruction sets that this processor has, the best first. For tests: the set to use
// from now on ("" for the best). Do not call while kernels run.
std::vector<std::string> vector_targets();
void choose_vector_target(const std::string &name);

}  // namespace moorage::core

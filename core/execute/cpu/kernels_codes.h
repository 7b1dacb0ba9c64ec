// kernels_codes.h - products in which weights and activations are small integers: the fast
// arithmetic (decision 0036). The results are equal on every processor, to the bit.
//
// A row is cut where parts of an expert end (expert_parts). A part is cut into chunks of 256
// columns, a chunk into 16 blocks of 16. For a block k of a chunk, with integers throughout,
//
//   n[k] = sum of (code - zero) activation code
//   chain[k] = fma(n[k], weight scale * activation scale, chain[k]), and, where the format has one,
//   chain[k] = fma(weight offset, activation sum, chain[k])
//
// from chunk to chunk. At the end of the part its 16 chains are added, beginning with the first.
// Rows for few tokens and panels for many tokens use different loops with the same result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/activation_form.h"

namespace moorage::core {

constexpr uint32_t CHUNK_COLUMNS = 256, CODE_BLOCK = 16, CHUNK_BLOCKS = 16;

// 256 activations. Zeros where a part ends earlier.
struct alignas(64) activation_chunk {
    int8_t codes[CHUNK_COLUMNS];   // from -127 to 127
    float scales[CHUNK_BLOCKS];    // scale of a block; NaN if one of its activations is NaN
    float sums[CHUNK_BLOCKS];      // scale times count; for a scale of 32 columns the sum is with
                                   // the first 16
    int32_t counts[CHUNK_BLOCKS];  // sums of codes
};
// 256 weights of a row: (code - zero) scale + offset.
struct alignas(64) weight_chunk {
    uint8_t codes[CHUNK_COLUMNS];
    float scales[CHUNK_BLOCKS], offsets[CHUNK_BLOCKS];
};
// The properties that the codes of a format share.
struct code_format {
    uint32_t zero = 0;  // 0 or a power of two
    bool offsets = false;
    uint32_t largest = 255;  // the largest code
};
constexpr code_format code_format_of(weight_type type) {
    switch (type) {
        case weight_type::q8_0:
        case weight_type::iq4_nl:
        case weight_type::iq4_xs:
            return {128, false};
        case weight_type::q4_0:
            return {8, false, 15};
        case weight_type::q5_0:
        case weight_type::mxfp4_gguf:  // its codes are twice the value
            return {16, false, 31};
        case weight_type::q3_k:
            return {4, false, 7};
        case weight_type::q6_k:
            return {32, false, 63};
        default:
            return {0, true, 31};
    }
}

// Columns whose activations share a scale in products outside of experts. Formats in blocks of 32
// have 32, as in ggml, whose rounding of scales to binary16 is kept, so texts stay near its texts.
// Formats in blocks of 256 have 16: ggml's one scale for all of them rounds twice as much. Within
// experts and before the head it is always 16, whatever the format has (decision 0036).
constexpr uint32_t shared_columns(weight_type type) {
    return format_of(type).block == 32 ? 32 : CODE_BLOCK;
}

// How the columns of a row are cut.
struct code_layout {
    uint32_t columns, part;  // part: columns of every part but the last
    uint32_t shared;         // columns that share a scale: 16 or 32
    uint32_t chunks_of_part() const { return (part + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS; }
    uint32_t parts() const { return (columns + part - 1) / part; }
    uint32_t chunks() const { return parts() * chunks_of_part(); }  // the last part may need fewer
    uint32_t columns_of(uint32_t index) const {
        return index + 1 < parts() ? part : columns - index * part;
    }
};

// As row_task, with activations in codes.
struct code_task {
    const matrix *weights;
    uint32_t first, count;  // rows
    uint32_t part;
    uint32_t tokens;  // 1 .. STREAM_TOKENS_MAX
    const activation_chunk *inputs[STREAM_TOKENS_MAX];
    const float *start;  // [count] or null
    bool add;
    float *output;  // of row `first`
    size_t output_stride;
};

// Sixteen rows transposed: one block of each, of 16 columns.
constexpr uint32_t CODE_ROWS = 16, CODE_TOKENS_MAX = 12;
struct alignas(64) code_panel_block {
    uint32_t words[4][CODE_ROWS];  // four codes minus their zero, of one row
    float scales[CODE_ROWS], offsets[CODE_ROWS];
    int32_t starts[CODE_ROWS];  // -128 times the sums of codes, because activations come with 128
                                // added
};
// Words of a block for each token of a tile. A block is words[4][tokens], scales[tokens],
// sums[tokens].
constexpr uint32_t TILE_WORDS = 6;
// Blocks of panels and tiles are ordered by part, by number in the chunk, by chunk.
struct code_tile_task {
    const code_panel_block *panel;
    const uint32_t *input;
    uint32_t columns, tokens;  // of one part
    bool offsets;
    bool add;            // to what the output holds
    const float *start;  // [CODE_ROWS], added first, or null
    float *output;       // CODE_ROWS floats a token
    size_t output_stride;
};

struct code_kernels {
    // Rounds 16 or 32 activations (shared_columns) to blocks of a chunk from `block` on.
    void (*round)(const float *values, uint32_t count, activation_chunk *chunk, uint32_t block);
    void (*multiply)(const code_task &task);
    // Reads columns [begin, begin + count) of one row. begin is at the border of a block of the
    // format. Memory may be read up to `end` (codes_end).
    void (*read[weight_format_count])(const std::byte *row, const std::byte *end, uint32_t begin,
                                      uint32_t count, weight_chunk &chunk);
    // Packs the rows [first, first + CODE_ROWS) over the columns of a part. If there are fewer
    // rows, the last one is repeated.
    void (*pack)(const matrix &source, uint32_t first, uint32_t begin, uint32_t count,
                 code_panel_block *panel);
    void (*tile)(const code_tile_task &task);
    uint32_t tokens;  // of a tile, at most
};
const code_kernels &vector_codes();
// The end of the last row.
inline const std::byte *codes_end(const matrix &weights) {
    return weights.data + uint64_t{weights.rows - 1} * weights.row_bytes +
           bytes_of_columns(weights.type, weights.columns);
}

// Rounds all activations of a row, to chunks of `cut`.
void round_row(const float *values, const code_layout &cut, activation_chunk *chunks);
// Rounds cut.shared activations from `column` on. If the part ends within the chunk, zeros follow.
void round_at(const float *values, const code_layout &cut, uint32_t column,
              activation_chunk *chunks);

}  // namespace moorage::core

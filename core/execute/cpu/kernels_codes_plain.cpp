// kernels_codes_plain.cpp - codes of eight bits and their sums, one value at a time.
#include "core/execute/cpu/kernels_codes_plain.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/half.h"

namespace moorage::core {

namespace {

constexpr std::array<int8_t, 16> iq4_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::array<int8_t, 16> twice_fp4 = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};

uint32_t byte_at(const std::byte *source, size_t index) {
    return std::to_integer<uint32_t>(source[index]);
}
float half_at(const std::byte *source) {
    uint16_t word;
    std::memcpy(&word, source, sizeof word);
    return float_of_half(word);
}
uint32_t nibble(const std::byte *source, uint32_t i) {
    return byte_at(source, i % 16) >> i / 16 * 4 & 15;
}
uint32_t bit_of(const std::byte *source, uint32_t i) { return byte_at(source, i / 8) >> i % 8 & 1; }
uint32_t two_bits(const std::byte *source, uint32_t i) {
    return byte_at(source, i / 128 * 32 + i % 32) >> i % 128 / 32 * 2 & 3;
}
uint32_t nibble_of_k(const std::byte *source, uint32_t i) {
    return byte_at(source, i / 64 * 32 + i % 32) >> i / 32 % 2 * 4 & 15;
}

// Value i of a block: (code - zero) scale + offset.
struct plain_value {
    uint32_t code;
    float scale, offset = 0;
};

plain_value read_four_k(const std::byte *block, uint32_t i, uint32_t code) {
    const std::byte *packed = block + 4;
    const uint32_t group = i / 32;
    uint32_t scale = byte_at(packed, group % 4) & 63, minimum = byte_at(packed, 4 + group % 4) & 63;
    if (group >= 4) {
        const uint32_t packed_high = byte_at(packed, 4 + group);
        scale = (packed_high & 15) | byte_at(packed, group - 4) >> 6 << 4;
        minimum = packed_high >> 4 | byte_at(packed, group) >> 6 << 4;
    }
    return {code, half_at(block) * static_cast<float>(scale),
            -half_at(block + 2) * static_cast<float>(minimum)};
}

plain_value read_three_k(const std::byte *block, uint32_t i) {
    const uint32_t k = i / 16;
    const uint32_t low = byte_at(block, 96 + k % 8) >> k / 8 * 4 & 15;
    const uint32_t high = byte_at(block, 104 + k % 4) >> k / 4 * 2 & 3;
    const uint32_t top = byte_at(block, i % 32) >> i / 32 & 1;
    const int scale = static_cast<int>(low | high << 4) - 32;
    return {two_bits(block + 32, i) | top << 2, half_at(block + 108) * static_cast<float>(scale)};
}

plain_value read_six_k(const std::byte *block, uint32_t i) {
    const uint32_t half = i / 128, quarter = i / 32 % 4;
    const uint32_t low =
        byte_at(block, 64 * half + quarter % 2 * 32 + i % 32) >> quarter / 2 * 4 & 15;
    const auto scale = static_cast<int8_t>(byte_at(block, 192 + i / 16));
    return {low | two_bits(block + 128, i) << 4, half_at(block + 208) * static_cast<float>(scale)};
}

plain_value read_iq4_xs(const std::byte *block, uint32_t i) {
    const uint32_t group = i / 32, high = byte_at(block, 2) | byte_at(block, 3) << 8;
    const uint32_t scale =
        (byte_at(block, 4 + group / 2) >> group % 2 * 4 & 15) | (high >> 2 * group & 3) << 4;
    return {static_cast<uint32_t>(128 + iq4_values[nibble(block + 8 + 16 * group, i % 32)]),
            half_at(block) * static_cast<float>(static_cast<int>(scale) - 32)};
}

template <weight_type type>
plain_value read_value(const std::byte *block, uint32_t i) {
    if constexpr (type == weight_type::q8_0) {
        return {byte_at(block, 2 + i) ^ 128, half_at(block)};
    } else if constexpr (type == weight_type::q4_0) {
        return {nibble(block + 2, i), half_at(block)};
    } else if constexpr (type == weight_type::q4_1) {
        return {nibble(block + 4, i), half_at(block), half_at(block + 2)};
    } else if constexpr (type == weight_type::q5_0) {
        return {nibble(block + 6, i) | bit_of(block + 2, i) << 4, half_at(block)};
    } else if constexpr (type == weight_type::q5_1) {
        return {nibble(block + 8, i) | bit_of(block + 4, i) << 4, half_at(block),
                half_at(block + 2)};
    } else if constexpr (type == weight_type::q2_k) {
        const uint32_t packed = byte_at(block, i / 16);
        return {two_bits(block + 16, i), half_at(block + 80) * static_cast<float>(packed & 15),
                -half_at(block + 82) * static_cast<float>(packed >> 4)};
    } else if constexpr (type == weight_type::q3_k) {
        return read_three_k(block, i);
    } else if constexpr (type == weight_type::q4_k) {
        return read_four_k(block, i, nibble_of_k(block + 16, i));
    } else if constexpr (type == weight_type::q5_k) {
        return read_four_k(block, i,
                           nibble_of_k(block + 48, i) | (byte_at(block, 16 + i % 32) >> i / 32 & 1)
                                                            << 4);
    } else if constexpr (type == weight_type::q6_k) {
        return read_six_k(block, i);
    } else if constexpr (type == weight_type::iq4_nl) {
        return {static_cast<uint32_t>(128 + iq4_values[nibble(block + 2, i)]), half_at(block)};
    } else if constexpr (type == weight_type::iq4_xs) {
        return read_iq4_xs(block, i);
    } else {
        static_assert(type == weight_type::mxfp4_gguf);
        const float half_scale = std::ldexp(1.0F, static_cast<int>(byte_at(block, 0)) - 128);
        return {static_cast<uint32_t>(16 + twice_fp4[nibble(block + 1, i)]), half_scale};
    }
}

template <weight_type type>
void read(const std::byte *row, const std::byte *, uint32_t begin, uint32_t count,
          weight_chunk &chunk) {
    constexpr weight_format format = format_of(type);
    chunk = {};
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t column = begin + i;
        const plain_value value = read_value<type>(
            row + size_t{column / format.block} * format.bytes, column % format.block);
        chunk.codes[i] = static_cast<uint8_t>(value.code);
        chunk.scales[i / CODE_BLOCK] = value.scale;
        chunk.offsets[i / CODE_BLOCK] = value.offset;
    }
}

constexpr bool has_codes(weight_type type) { return usual_form_of(type) == activation_form::codes; }

void read_any(const matrix &source, uint64_t row, uint32_t begin, uint32_t count,
              weight_chunk &chunk) {
    plain_codes().read[static_cast<size_t>(source.type)](source.data + row * source.row_bytes,
                                                         codes_end(source), begin, count, chunk);
}

void round_blocks(const float *values, uint32_t count, activation_chunk *chunk, uint32_t block) {
    float largest = 0, nonfinite = 0;
    for (uint32_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::abs(values[i]));
        nonfinite += values[i] - values[i];
    }
    const code_rounding rounding = code_rounding_of(count, largest, nonfinite);
    int32_t counts[2] = {};
    for (uint32_t i = 0; i < count; ++i) {
        const auto code =
            nonfinite == 0 ? static_cast<int32_t>(std::nearbyint(values[i] * rounding.inverse)) : 0;
        chunk->codes[CODE_BLOCK * block + i] = static_cast<int8_t>(code);
        counts[i / CODE_BLOCK] += code;
    }
    note_rounding(rounding, count, counts, chunk, block);
}

// A chain further by a block.
float extend_chain(float chain, int32_t dot, float weight, float activation, float offset,
                   float sum) {
    chain += static_cast<float>(dot) * (weight * activation);
    return chain + offset * sum;
}

float sum_row_part(const code_task &task, uint64_t row, const activation_chunk *chunks,
                   uint32_t begin, uint32_t columns) {
    const auto zero = static_cast<int32_t>(code_format_of(task.weights->type).zero);
    float chains[CHUNK_BLOCKS] = {};
    weight_chunk weights;
    for (uint32_t column = 0; column < columns; column += CHUNK_COLUMNS, ++chunks) {
        read_any(*task.weights, row, begin + column, std::min(CHUNK_COLUMNS, columns - column),
                 weights);
        for (uint32_t k = 0; k < CHUNK_BLOCKS; ++k) {
            int32_t dot = 0;
            for (uint32_t i = k * CODE_BLOCK; i < (k + 1) * CODE_BLOCK; ++i)
                dot += (weights.codes[i] - zero) * chunks->codes[i];
            chains[k] = extend_chain(chains[k], dot, weights.scales[k], chunks->scales[k],
                                     weights.offsets[k], chunks->sums[k]);
        }
    }
    float total = 0;
    for (const float chain : chains) total += chain;
    return total;
}

void multiply(const code_task &task) {
    const code_layout cut{task.weights->columns, task.part, shared_columns(task.weights->type)};
    for (uint32_t t = 0; t < task.tokens; ++t)
        for (uint32_t r = 0; r < task.count; ++r) {
            float &target = task.output[t * task.output_stride + r];
            float total = task.add ? target : 0;
            if (task.start) total += task.start[r];
            for (uint32_t part = 0; part < cut.parts(); ++part)
                total += sum_row_part(task, uint64_t{task.first} + r,
                                      task.inputs[t] + size_t{part} * cut.chunks_of_part(),
                                      part * cut.part, cut.columns_of(part));
            target = total;
        }
}

void pack(const matrix &source, uint32_t first, uint32_t begin, uint32_t count,
          code_panel_block *panel) {
    const uint32_t zero = code_format_of(source.type).zero;
    const uint32_t chunks = (count + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    weight_chunk weights;
    for (uint32_t r = 0; r < CODE_ROWS; ++r)
        for (uint32_t column = 0, c = 0; column < count; column += CHUNK_COLUMNS, ++c) {
            const uint32_t columns = std::min(CHUNK_COLUMNS, count - column);
            read_any(source, std::min(first + r, source.rows - 1), begin + column, columns,
                     weights);
            for (uint32_t k = 0; k < columns / CODE_BLOCK; ++k) {
                code_panel_block &block = panel[size_t{k} * chunks + c];
                int32_t sum = 0;
                for (uint32_t i = 0; i < CODE_BLOCK; ++i) {
                    const auto code = static_cast<int8_t>(weights.codes[k * CODE_BLOCK + i] - zero);
                    sum += code;
                    reinterpret_cast<int8_t *>(&block.words[i / 4][r])[i % 4] = code;
                }
                block.scales[r] = weights.scales[k];
                block.offsets[r] = weights.offsets[k];
                block.starts[r] = -128 * sum;
            }
        }
}

float sum_panel_part(const code_tile_task &task, uint32_t token, uint32_t row) {
    const uint32_t chunks = (task.columns + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    float total = 0;
    for (uint32_t k = 0; k < CHUNK_BLOCKS; ++k) {
        float chain = 0;
        for (uint32_t c = 0; c < chunks && c * CHUNK_BLOCKS + k < task.columns / CODE_BLOCK; ++c) {
            const size_t index = size_t{k} * chunks + c;
            const code_panel_block &block = task.panel[index];
            const uint32_t *const input = task.input + index * TILE_WORDS * task.tokens;
            int32_t dot = block.starts[row];
            for (uint32_t i = 0; i < CODE_BLOCK; ++i) {
                const uint32_t word = input[i / 4 * task.tokens + token];
                dot += static_cast<int32_t>(word >> i % 4 * 8 & 255) *
                       reinterpret_cast<const int8_t *>(&block.words[i / 4][row])[i % 4];
            }
            const auto scale = std::bit_cast<float>(input[4 * task.tokens + token]);
            const auto sum = std::bit_cast<float>(input[5 * task.tokens + token]);
            chain = extend_chain(chain, dot, block.scales[row], scale, block.offsets[row], sum);
        }
        total += chain;
    }
    return total;
}

void tile(const code_tile_task &task) {
    for (uint32_t t = 0; t < task.tokens; ++t)
        for (uint32_t r = 0; r < CODE_ROWS; ++r) {
            float &target = task.output[t * task.output_stride + r];
            float start = task.add ? target : 0;
            if (task.start) start += task.start[r];
            target = start + sum_panel_part(task, t, r);
        }
}

template <size_t... index>
constexpr code_kernels kernels_of(std::index_sequence<index...>) {
    code_kernels kernels{round_blocks, multiply, {}, pack, tile, 4};
    const auto add = [&]<size_t number>() {
        constexpr weight_type type = weight_formats[number].type;
        if constexpr (has_codes(type)) kernels.read[number] = read<type>;
    };
    (add.template operator()<index>(), ...);
    return kernels;
}

}  // namespace

const code_kernels &plain_codes() {
    static constexpr code_kernels kernels =
        kernels_of(std::make_index_sequence<weight_format_count>());
    return kernels;
}

namespace {

// Zeros from block `first` on.
void clear_blocks(activation_chunk &chunk, uint32_t first) {
    std::fill(chunk.codes + size_t{first} * CODE_BLOCK, chunk.codes + CHUNK_COLUMNS, int8_t{0});
    std::fill(chunk.scales + first, chunk.scales + CHUNK_BLOCKS, 0.0F);
    std::fill(chunk.sums + first, chunk.sums + CHUNK_BLOCKS, 0.0F);
    std::fill(chunk.counts + first, chunk.counts + CHUNK_BLOCKS, 0);
}

}  // namespace

void round_at(const float *values, const code_layout &cut, uint32_t column,
              activation_chunk *chunks) {
    const uint32_t part = column / cut.part, part_column = column % cut.part;
    const uint32_t block = part_column % CHUNK_COLUMNS / CODE_BLOCK, end = cut.columns_of(part);
    activation_chunk &chunk =
        chunks[size_t{part} * cut.chunks_of_part() + part_column / CHUNK_COLUMNS];
    vector_codes().round(values, cut.shared, &chunk, block);
    const uint32_t next = block + cut.shared / CODE_BLOCK;
    if (part_column + cut.shared == end && next < CHUNK_BLOCKS) clear_blocks(chunk, next);
}

void round_row(const float *values, const code_layout &cut, activation_chunk *chunks) {
    for (uint32_t column = 0; column < cut.columns; column += cut.shared)
        round_at(values + column, cut, column, chunks);
}

}  // namespace moorage::core

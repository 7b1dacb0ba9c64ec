// weight_readers.h - the formats of weights as a GPU reads them, one struct each (decision 0037).
//
//   floats4 values = reader<weight_type::q4_k>::run<16>(row, span, lead, number);
//
// A row is cut into spans of `runs * apart` columns. A run is four columns side by side. With
// `lead` = 0, 4, .. apart - 4, run `number` begins at column number * apart + lead of its span. One
// word of codes holds the runs of one lead, and a lane reads these at a time. Values equal those of
// core/model/weight_values.cpp, to the bit. That file also describes the layout of blocks.
//
// `aligned` is the alignment of rows: 1, or the format's `alignment`, which its blocks keep. Where
// a run may cross the end of a row, `single` gives one value.
#pragma once

#include <type_traits>

#include "core/execute/gpu/arithmetic/host_device.h"
#include "core/model/weights.h"

namespace moorage::core::gpu {

// A place in the shared memory of a block of threads.
struct near_bytes {
    const std::byte *address;

    MOORAGE_HOST_DEVICE friend near_bytes operator+(near_bytes pointer, uint64_t bytes) {
        return {pointer.address + bytes};
    }
    MOORAGE_HOST_DEVICE friend near_bytes operator-(near_bytes pointer, uint64_t bytes) {
        return {pointer.address - bytes};
    }
};
MOORAGE_HOST_DEVICE inline const std::byte *plain(const std::byte *pointer) { return pointer; }
MOORAGE_HOST_DEVICE inline const std::byte *plain(near_bytes pointer) { return pointer.address; }

// A row of a matrix, with its separate scales and orders. Its values are in place or in shared
// memory.
template <class Bytes>
struct row_in {
    Bytes values;
    const std::byte *scales;
    const uint32_t *group_of;  // int4_ordered: [columns]
};
using stored_row = row_in<const std::byte *>;
using near_row = row_in<near_bytes>;

template <weight_type type>
struct reader;

// ---- memory
// ---------------------------------------------------------------------------------------

template <class Value, class Source>
MOORAGE_HOST_DEVICE inline Value fetch(Source source) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<Source, near_bytes>)
        return *reinterpret_cast<const Value *>(source.address);
    else
        return __ldg(reinterpret_cast<const Value *>(source));
#else
    Value value;
    std::memcpy(&value, plain(source), sizeof(value));
    return value;
#endif
}
template <class Source>
MOORAGE_HOST_DEVICE inline uint32_t load_byte(Source source) {
    return fetch<unsigned char>(source);
}
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline uint32_t load_half(Source source) {
    if constexpr (aligned % 2 == 0) return fetch<unsigned short>(source);
    return load_byte(source) | load_byte(source + 1) << 8;
}
// Without alignment it may read up to the next border of four bytes.
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline uint32_t load_word(Source source) {
#if defined(__CUDA_ARCH__)
    if constexpr (aligned % 4 == 0) return fetch<unsigned int>(source);
    if constexpr (aligned % 2 == 0) return load_half<2>(source) | load_half<2>(source + 2) << 16;
    const uint32_t off = reinterpret_cast<uintptr_t>(plain(source)) & 3;
    const uint32_t next = off == 0 ? 0 : fetch<unsigned int>(source - off + 4);
    return __funnelshift_r(fetch<unsigned int>(source - off), next, off * 8);
#else
    return fetch<uint32_t>(source);
#endif
}
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline words16 load_words(Source source) {
    words16 words;
    if constexpr (aligned % 16 == 0) {
#if defined(__CUDA_ARCH__)
        const uint4 vector = fetch<uint4>(source);
        words = {{vector.x, vector.y, vector.z, vector.w}};
#else
        words = fetch<words16>(source);
#endif
    } else {
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) words.word[i] = load_word<aligned>(source + 4 * i);
    }
    return words;
}
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline float load_f16(Source source) {
    return float_of_f16(static_cast<uint16_t>(load_half<aligned>(source)));
}
template <class Source>
MOORAGE_HOST_DEVICE inline float load_f32(Source source) {
    return float_of_bits(load_word<1>(source));
}

// ---- codes: a byte each, four in a word
// --------------------------------------------------------------

MOORAGE_HOST_DEVICE inline uint32_t byte_of(uint32_t word, uint32_t number) {
    return word >> 8 * number & 255;
}
// Four codes of a few bits each, that begin at bit `low` of each byte.
MOORAGE_HOST_DEVICE inline uint32_t bits_of(uint32_t word, uint32_t low, uint32_t mask) {
    return word >> low & mask * 0x01010101u;
}
// Codes minus their zero point. Adding a byte as the lowest bits of 2^23's fraction converts it to
// float.
MOORAGE_HOST_DEVICE inline floats4 codes_less(uint32_t codes, float zero) {
    floats4 values;
    MOORAGE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
#if defined(__CUDA_ARCH__)
        const uint32_t placed = __byte_perm(codes, 0x4b000000u, 0x7540u | i);
#else
        const uint32_t placed = 0x4b000000u | byte_of(codes, i);
#endif
        values.value[i] = float_of_bits(placed) - (8388608.0f + zero);
    }
    return values;
}
MOORAGE_HOST_DEVICE inline floats4 times(float scale, floats4 values) {
    MOORAGE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) values.value[i] *= scale;
    return values;
}
// Adding something to scale times codes loses no bit of the product: it is exact.
MOORAGE_HOST_DEVICE inline floats4 times_plus(float scale, floats4 values, float offset) {
    MOORAGE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) values.value[i] = scale * values.value[i] + offset;
    return values;
}

// Sixteen small numbers, with 128 added to each, four in a word.
struct code_table {
    uint32_t word[4];
};
constexpr code_table table_of(const int (&values)[16]) {
    code_table table{};
    for (uint32_t i = 0; i < 16; ++i)
        table.word[i / 4] |= static_cast<uint32_t>(values[i] + 128) << i % 4 * 8;
    return table;
}
inline constexpr int iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int twice_fp4_values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr code_table iq4_table = table_of(iq4_values);
inline constexpr code_table twice_fp4_table = table_of(twice_fp4_values);

// The numbers for four codes of 4 bits.
MOORAGE_HOST_DEVICE inline floats4 looked_up(uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3,
                                             uint32_t codes) {
#if defined(__CUDA_ARCH__)
    const uint32_t places = __byte_perm(codes | codes >> 4, 0, 0x4420) & 0x7777;
    const uint32_t low = __byte_perm(t0, t1, places), high = __byte_perm(t2, t3, places);
    const uint32_t upper = (codes >> 3 & 0x01010101u) * 255;
    return codes_less((low & ~upper) | (high & upper), 128);
#else
    const uint32_t table[4] = {t0, t1, t2, t3};
    uint32_t found = 0;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t code = byte_of(codes, i);
        found |= byte_of(table[code / 4], code % 4) << 8 * i;
    }
    return codes_less(found, 128);
#endif
}
MOORAGE_HOST_DEVICE inline floats4 iq4_of(uint32_t codes) {
    constexpr code_table t = iq4_table;
    return looked_up(t.word[0], t.word[1], t.word[2], t.word[3], codes);
}
MOORAGE_HOST_DEVICE inline floats4 twice_fp4_of(uint32_t codes) {
    constexpr code_table t = twice_fp4_table;
    return looked_up(t.word[0], t.word[1], t.word[2], t.word[3], codes);
}

// ---- values that lie alone
// ------------------------------------------------------------------------------

template <>
struct reader<weight_type::f32> {
    static constexpr uint32_t runs = 1, apart = 4, alignment = 16;
    template <uint32_t aligned>
    MOORAGE_HOST_DEVICE static floats4 run(const stored_row &row, uint32_t span, uint32_t,
                                           uint32_t) {
        const words16 words = load_stream(row.values + span * 16ull);
        floats4 values;
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) values.value[i] = float_of_bits(words.word[i]);
        return values;
    }
    MOORAGE_HOST_DEVICE static float single(const stored_row &row, uint32_t column) {
        return load_f32(row.values + column * 4ull);
    }
};
// Reads values of two bytes: eight at a time in `unit`, four in `run`.
template <class Widened>
struct short_reader {
    static constexpr uint32_t runs = 2, apart = 4, alignment = 16;
    MOORAGE_HOST_DEVICE static void unit(const stored_row &row, uint32_t span, uint32_t,
                                         floats4 *values) {
        const words16 words = load_stream(row.values + span * 16ull);
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            values[i / 2].value[i % 2 * 2] = Widened::low(words.word[i]);
            values[i / 2].value[i % 2 * 2 + 1] = Widened::high(words.word[i]);
        }
    }
    template <uint32_t aligned>
    MOORAGE_HOST_DEVICE static floats4 run(const stored_row &row, uint32_t span, uint32_t,
                                           uint32_t number) {
        const std::byte *source = row.values + span * 16ull + number * 8;
        const uint32_t first = load_word<aligned>(source), second = load_word<aligned>(source + 4);
        return {{Widened::low(first), Widened::high(first), Widened::low(second),
                 Widened::high(second)}};
    }
    MOORAGE_HOST_DEVICE static float single(const stored_row &row, uint32_t column) {
        return Widened::low(load_half<1>(row.values + column * 2ull));
    }
};
struct widened_bf16 {
    MOORAGE_HOST_DEVICE static float low(uint32_t pair) { return float_of_bits(pair << 16); }
    MOORAGE_HOST_DEVICE static float high(uint32_t pair) {
        return float_of_bits(pair & 0xffff0000u);
    }
};
struct widened_f16 {
    MOORAGE_HOST_DEVICE static float low(uint32_t pair) {
        return float_of_f16(static_cast<uint16_t>(pair));
    }
    MOORAGE_HOST_DEVICE static float high(uint32_t pair) {
        return float_of_f16(static_cast<uint16_t>(pair >> 16));
    }
};
template <>
struct reader<weight_type::bf16> : short_reader<widened_bf16> {};
template <>
struct reader<weight_type::f16> : short_reader<widened_f16> {};

template <>
struct reader<weight_type::fp8> {
    static constexpr uint32_t runs = 1, apart = 4, alignment = 4;
    // Moves exponent and fraction to the place where a float has them. A float's bias is larger by
    // 120.
    MOORAGE_HOST_DEVICE static float value_of_code(uint32_t code) {
        const uint32_t magnitude = code & 0x7f;
        const float value = float_of_bits(magnitude << 20 | (code & 0x80) << 24) * 0x1p120f;
        return magnitude == 0x7f ? float_of_bits(0x7fc00000u) : value;
    }
    template <class Row>
    MOORAGE_HOST_DEVICE static float scale(const Row &row, uint32_t column) {
        return load_f32(row.scales + column / 128 * 4ull);
    }
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t, uint32_t) {
        const uint32_t codes = load_word<aligned>(row.values + span * 4ull);
        floats4 values;
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) values.value[i] = value_of_code(byte_of(codes, i));
        return times(scale(row, span * 4), values);
    }
    template <class Row>
    MOORAGE_HOST_DEVICE static float single(const Row &row, uint32_t column) {
        return value_of_code(load_byte(row.values + column)) * scale(row, column);
    }
};

// ---- blocks of 32
// ---------------------------------------------------------------------------------------

template <>
struct reader<weight_type::mxfp4> {
    static constexpr uint32_t runs = 2, apart = 4, alignment = 4;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t,
                                           uint32_t number) {
        const uint32_t codes = load_word<aligned>(row.values + span * 4ull) >> 16 * number;
        floats4 values;
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) values.value[i] = float_of_fp4(codes >> 4 * i);
        return times(float_of_scale(load_byte(row.scales + span / 4)), values);
    }
};

template <>
struct reader<weight_type::q8_0> {
    static constexpr uint32_t runs = 1, apart = 4, alignment = 2;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t, uint32_t) {
        const auto block = row.values + span / 8 * 34ull;
        const uint32_t codes = load_word<aligned>(block + 2 + span % 8 * 4);
        return times(load_f16<aligned>(block), codes_less(codes ^ 0x80808080u, 128));
    }
};

// 16 bytes of nibbles at `codes`, the low halves first, and the values that precede them in the
// block.
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline uint32_t nibbles_at(Source codes, uint32_t lead, uint32_t number) {
    return bits_of(load_word<aligned>(codes + lead), 4 * number, 15);
}
// The fifth bits of the same codes, in the fifth place of each byte: the bits from `first` on, out
// of 32.
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline uint32_t fifths_at(Source word, uint32_t first) {
    const uint32_t four = load_word<aligned>(word) >> first & 15;
    // Moves bit i of the four to bit 8 i + 4.
    return (four * 0x00204081u & 0x01010101u) << 4;
}

template <>
struct reader<weight_type::q4_0> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 2;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span * 18ull;
        return times(load_f16<aligned>(block),
                     codes_less(nibbles_at<aligned>(block + 2, lead, number), 8));
    }
};
template <>
struct reader<weight_type::q4_1> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 4;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span * 20ull;
        return times_plus(load_f16<aligned>(block),
                          codes_less(nibbles_at<aligned>(block + 4, lead, number), 0),
                          load_f16<aligned>(block + 2));
    }
};
template <>
struct reader<weight_type::q5_0> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 2;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span * 22ull;
        const uint32_t codes = nibbles_at<aligned>(block + 6, lead, number) |
                               fifths_at<aligned>(block + 2, 16 * number + lead);
        return times(load_f16<aligned>(block), codes_less(codes, 16));
    }
};
template <>
struct reader<weight_type::q5_1> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 4;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span * 24ull;
        const uint32_t codes = nibbles_at<aligned>(block + 8, lead, number) |
                               fifths_at<aligned>(block + 4, 16 * number + lead);
        return times_plus(load_f16<aligned>(block), codes_less(codes, 0),
                          load_f16<aligned>(block + 2));
    }
};
template <>
struct reader<weight_type::iq4_nl> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 2;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span * 18ull;
        return times(load_f16<aligned>(block),
                     iq4_of(nibbles_at<aligned>(block + 2, lead, number)));
    }
};
template <>
struct reader<weight_type::mxfp4_gguf> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 1;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span * 17ull;
        // Half the scale for twice the value, because the largest scale itself does not fit into
        // float32.
        const uint32_t exponent = load_byte(block);
        const uint32_t half = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
        return times(float_of_bits(half),
                     twice_fp4_of(nibbles_at<aligned>(block + 1, lead, number)));
    }
};

// A float32, the zero point in a byte, and nibbles of 32 values at a time.
template <uint32_t block_values>
struct int4_reader {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 1;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        constexpr uint32_t in_block = block_values / 32;
        const auto block = row.values + span / in_block * (5 + block_values / 2ull);
        const uint32_t codes = nibbles_at<aligned>(block + 5 + span % in_block * 16, lead, number);
        return times(load_f32(block), codes_less(codes, static_cast<float>(load_byte(block + 4))));
    }
};
template <>
struct reader<weight_type::int4_32> : int4_reader<32> {};
template <>
struct reader<weight_type::int4_64> : int4_reader<64> {};
template <>
struct reader<weight_type::int4_128> : int4_reader<128> {};

// Each column belongs to a group of its own choice. Scale and zero point of the group are stored
// apart.
template <>
struct reader<weight_type::int4_ordered> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 4;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        floats4 values =
            codes_less(nibbles_at<aligned>(row.values + span * 16ull, lead, number), 0);
        const uint32_t *groups = row.group_of + span * 32ull + 16 * number + lead;
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            const std::byte *group_scale = row.scales + groups[i] * 8ull;
            values.value[i] = load_f32(group_scale) * (values.value[i] - load_f32(group_scale + 4));
        }
        return values;
    }
};

// ---- blocks of 256
// --------------------------------------------------------------------------------------

// Two bits of each value, of 32 bytes for 128 values.
template <uint32_t aligned, class Source>
MOORAGE_HOST_DEVICE inline uint32_t two_bits_at(Source codes, uint32_t half, uint32_t lead,
                                                uint32_t number) {
    return bits_of(load_word<aligned>(codes + 32 * half + lead), 2 * number, 3);
}

template <>
struct reader<weight_type::q2_k> {
    static constexpr uint32_t runs = 4, apart = 32, alignment = 4;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span / 2 * 84ull;
        const uint32_t half = span % 2;
        const uint32_t packed = load_byte(block + 8 * half + 2 * number + lead / 16);
        const float scale = load_f16<aligned>(block + 80) * static_cast<float>(packed & 15);
        const float least = load_f16<aligned>(block + 82) * static_cast<float>(packed >> 4);
        return times_plus(
            scale, codes_less(two_bits_at<aligned>(block + 16, half, lead, number), 0), -least);
    }
};
template <>
struct reader<weight_type::q3_k> {
    static constexpr uint32_t runs = 4, apart = 32, alignment = 2;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span / 2 * 110ull;
        const uint32_t half = span % 2, k = 8 * half + 2 * number + lead / 16;
        const uint32_t low = load_byte(block + 96 + k % 8) >> 4 * half & 15;
        const uint32_t high = load_byte(block + 104 + k % 4) >> k / 4 * 2 & 3;
        const float scale = static_cast<float>(low | high << 4) - 32;
        const uint32_t top = bits_of(load_word<aligned>(block + lead), 4 * half + number, 1);
        const uint32_t codes = two_bits_at<aligned>(block + 32, half, lead, number) | top << 2;
        return times(load_f16<aligned>(block + 108) * scale, codes_less(codes, 4));
    }
};
template <>
struct reader<weight_type::q6_k> {
    static constexpr uint32_t runs = 4, apart = 32, alignment = 2;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span / 2 * 210ull;
        const uint32_t half = span % 2;
        const auto low = block + 64 * half + number % 2 * 32;
        const uint32_t codes = nibbles_at<aligned>(low, lead, number / 2) |
                               two_bits_at<aligned>(block + 128, half, lead, number) << 4;
        const uint32_t scale_code = load_byte(block + 192 + 8 * half + 2 * number + lead / 16);
        const float scale = static_cast<float>(static_cast<int8_t>(scale_code));
        return times(load_f16<aligned>(block + 208) * scale, codes_less(codes, 32));
    }
};

// The head of a block of Q4_K and Q5_K. Scale and minimum of a group of 32 have six bits each.
struct k_scales {
    float scale, least;
};
MOORAGE_HOST_DEVICE inline k_scales k_scales_of(const words16 &head, uint32_t group) {
    const uint32_t place = group % 4;
    const uint32_t a = byte_of(head.word[1], place), b = byte_of(head.word[2], place);
    const uint32_t c = byte_of(head.word[3], place);
    const bool first = group < 4;
    const uint32_t scale = first ? a & 63 : (c & 15) | a >> 6 << 4;
    const uint32_t least = first ? b & 63 : c >> 4 | b >> 6 << 4;
    return {float_of_f16(static_cast<uint16_t>(head.word[0])) * static_cast<float>(scale),
            float_of_f16(static_cast<uint16_t>(head.word[0] >> 16)) * static_cast<float>(least)};
}

template <>
struct reader<weight_type::q4_k> {
    static constexpr uint32_t runs = 2, apart = 32, alignment = 16;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span / 4 * 144ull;
        const k_scales scales = k_scales_of(load_words<aligned>(block), span % 4 * 2 + number);
        const uint32_t codes = nibbles_at<aligned>(block + 16 + span % 4 * 32, lead, number);
        return times_plus(scales.scale, codes_less(codes, 0), -scales.least);
    }
};
template <>
struct reader<weight_type::q5_k> {
    static constexpr uint32_t runs = 2, apart = 32, alignment = 16;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span / 4 * 176ull;
        const uint32_t group = span % 4 * 2 + number;
        const k_scales scales = k_scales_of(load_words<aligned>(block), group);
        const uint32_t top = bits_of(load_word<aligned>(block + 16 + lead), group, 1);
        const uint32_t codes =
            nibbles_at<aligned>(block + 48 + span % 4 * 32, lead, number) | top << 4;
        return times_plus(scales.scale, codes_less(codes, 0), -scales.least);
    }
};
template <>
struct reader<weight_type::iq4_xs> {
    static constexpr uint32_t runs = 2, apart = 16, alignment = 4;
    template <uint32_t aligned, class Row>
    MOORAGE_HOST_DEVICE static floats4 run(const Row &row, uint32_t span, uint32_t lead,
                                           uint32_t number) {
        const auto block = row.values + span / 8 * 136ull;
        const uint32_t group = span % 8;
        const uint32_t low = load_byte(block + 4 + group / 2) >> group % 2 * 4 & 15;
        const uint32_t high = load_half<aligned>(block + 2) >> 2 * group & 3;
        const float scale = static_cast<float>(low | high << 4) - 32;
        return times(load_f16<aligned>(block) * scale,
                     iq4_of(nibbles_at<aligned>(block + 8 + 16 * group, lead, number)));
    }
};

}  // namespace moorage::core::gpu

// weight_values.cpp - the definitions of the formats by their publishers.
//
// For ggml's formats: github.com/ggml-org/ggml, src/ggml-common.h and ggml-quants.c. `d` and `m`
// are binary16 numbers. In the nibbles of 16 bytes all low halves come first, then the high ones.
#include "core/model/weight_values.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/half.h"

namespace moorage::core {

namespace {

constexpr std::array<int8_t, 16> iq4_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::array<float, 8> fp4_values = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

uint32_t byte_at(const std::byte *bytes, size_t index) {
    return std::to_integer<uint32_t>(bytes[index]);
}
int32_t signed_at(const std::byte *bytes, size_t index) {
    return static_cast<int8_t>(std::to_integer<uint8_t>(bytes[index]));
}
template <class Value>
Value load(const std::byte *bytes) {
    Value value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}
float half_at(const std::byte *bytes) { return float_of_half(load<uint16_t>(bytes)); }

// Nibble i of 16 bytes.
uint32_t nibble(const std::byte *bytes, uint32_t i) {
    return byte_at(bytes, i % 16) >> i / 16 * 4 & 15;
}
uint32_t bit_of_word(const std::byte *bytes, uint32_t i) { return load<uint32_t>(bytes) >> i & 1; }
float fp4(uint32_t code) { return code & 8 ? -fp4_values[code & 7] : fp4_values[code & 7]; }

// The two bits of value i: 32 bytes hold 128 values.
uint32_t two_bits(const std::byte *bytes, uint32_t i) {
    return byte_at(bytes, i / 128 * 32 + i % 32) >> i % 128 / 32 * 2 & 3;
}

float q2_k(const std::byte *block, uint32_t i) {
    const uint32_t nibbles = byte_at(block, i / 16);
    const float scale = half_at(block + 80) * static_cast<float>(nibbles & 15);
    const float least = half_at(block + 82) * static_cast<float>(nibbles >> 4);
    return scale * static_cast<float>(two_bits(block + 16, i)) - least;
}

float q3_k(const std::byte *block, uint32_t i) {
    const uint32_t k = i / 16;
    const uint32_t low = byte_at(block, 96 + k % 8) >> k / 8 * 4 & 15;
    const uint32_t high = byte_at(block, 104 + k % 4) >> k / 4 * 2 & 3;
    const bool top = (byte_at(block, i % 32) >> i / 32 & 1) != 0;
    const int code = static_cast<int>(two_bits(block + 32, i)) - (top ? 0 : 4);
    const int scale = static_cast<int>(low | high << 4) - 32;
    return half_at(block + 108) * static_cast<float>(scale) * static_cast<float>(code);
}

// Q4_K and Q5_K: applies the group's scale and minimum, six bits each, to `code`.
float with_k_scales(const std::byte *block, uint32_t group, uint32_t code) {
    const std::byte *packed = block + 4;
    uint32_t scale = byte_at(packed, group % 4) & 63, least = byte_at(packed, 4 + group % 4) & 63;
    if (group >= 4) {
        const uint32_t nibbles = byte_at(packed, 4 + group);
        scale = (nibbles & 15) | byte_at(packed, group - 4) >> 6 << 4;
        least = nibbles >> 4 | byte_at(packed, group) >> 6 << 4;
    }
    return half_at(block) * static_cast<float>(scale) * static_cast<float>(code) -
           half_at(block + 2) * static_cast<float>(least);
}

// The four bits of value i: 32 bytes hold 64 values, the low halves first.
uint32_t nibble_of_k(const std::byte *bytes, uint32_t i) {
    return byte_at(bytes, i / 64 * 32 + i % 32) >> i / 32 % 2 * 4 & 15;
}

float q6_k(const std::byte *block, uint32_t i) {
    const uint32_t half = i / 128, quarter = i / 32 % 4;
    const uint32_t low =
        byte_at(block, 64 * half + quarter % 2 * 32 + i % 32) >> quarter / 2 * 4 & 15;
    const int code = static_cast<int>(low | two_bits(block + 128, i) << 4) - 32;
    const auto scale = static_cast<float>(signed_at(block, 192 + i / 16));
    return half_at(block + 208) * scale * static_cast<float>(code);
}

float iq4_xs(const std::byte *block, uint32_t i) {
    const uint32_t group = i / 32, high = load<uint16_t>(block + 2);
    const uint32_t scale =
        (byte_at(block, 4 + group / 2) >> group % 2 * 4 & 15) | (high >> 2 * group & 3) << 4;
    return half_at(block) * static_cast<float>(static_cast<int>(scale) - 32) *
           static_cast<float>(iq4_values[nibble(block + 8 + 16 * group, i % 32)]);
}

float int4(float scale, float zero, uint32_t code) {
    return scale * (static_cast<float>(code) - zero);
}

// Value i of a block that contains its scales.
float value_in_block(weight_type type, const std::byte *block, uint32_t i) {
    switch (type) {
        case weight_type::bf16:
            return std::bit_cast<float>(uint32_t{load<uint16_t>(block)} << 16);
        case weight_type::f16:
            return half_at(block);
        case weight_type::f32:
            return load<float>(block);
        case weight_type::q8_0:
            return half_at(block) * static_cast<float>(signed_at(block, 2 + i));
        case weight_type::q4_0:
            return half_at(block) * (static_cast<float>(nibble(block + 2, i)) - 8);
        case weight_type::q4_1:
            return half_at(block) * static_cast<float>(nibble(block + 4, i)) + half_at(block + 2);
        case weight_type::q5_0:
            return half_at(block) *
                   (static_cast<float>(nibble(block + 6, i) | bit_of_word(block + 2, i) << 4) - 16);
        case weight_type::q5_1:
            return half_at(block) *
                       static_cast<float>(nibble(block + 8, i) | bit_of_word(block + 4, i) << 4) +
                   half_at(block + 2);
        case weight_type::q2_k:
            return q2_k(block, i);
        case weight_type::q3_k:
            return q3_k(block, i);
        case weight_type::q4_k:
            return with_k_scales(block, i / 32, nibble_of_k(block + 16, i));
        case weight_type::q5_k:
            return with_k_scales(
                block, i / 32,
                nibble_of_k(block + 48, i) | (byte_at(block, 16 + i % 32) >> i / 32 & 1) << 4);
        case weight_type::q6_k:
            return q6_k(block, i);
        case weight_type::iq4_nl:
            return half_at(block) * static_cast<float>(iq4_values[nibble(block + 2, i)]);
        case weight_type::iq4_xs:
            return iq4_xs(block, i);
        case weight_type::mxfp4_gguf: {
            const float value = fp4(nibble(block + 1, i));
            // ggml has only one zero.
            return value == 0 ? 0 : std::ldexp(value, static_cast<int>(byte_at(block, 0)) - 127);
        }
        case weight_type::int4_32:
        case weight_type::int4_64:
        case weight_type::int4_128:
            return int4(load<float>(block), static_cast<float>(byte_at(block, 4)),
                        nibble(block + 5 + i / 32 * 16, i % 32));
        case weight_type::mxfp4:
        case weight_type::fp8:
        case weight_type::int4_ordered:
            break;
    }
    assert(false);
    return 0;
}

}  // namespace

float float_of_e4m3(uint8_t code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float sign = code & 0x80 ? -1.0F : 1.0F;
    if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -9);
    return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}

float weight_at(const matrix &weights, uint32_t row, uint32_t column) {
    const std::byte *data = weights.data + row * weights.row_bytes,
                    *scales = scales_at(weights, row);
    switch (weights.type) {
        case weight_type::mxfp4: {
            const uint32_t scale = byte_at(scales, column / 32);
            if (scale == 255) return std::numeric_limits<float>::quiet_NaN();
            return std::ldexp(fp4(byte_at(data, column / 2) >> column % 2 * 4 & 15),
                              static_cast<int>(scale) - 127);
        }
        case weight_type::fp8:
            return float_of_e4m3(std::to_integer<uint8_t>(data[column])) *
                   load<float>(scales + column / 128 * sizeof(float));
        case weight_type::int4_ordered: {
            const std::byte *scale_and_zero = scales + weights.group_of[column] * 2 * sizeof(float);
            return int4(load<float>(scale_and_zero), load<float>(scale_and_zero + sizeof(float)),
                        nibble(data + column / 32 * 16, column % 32));
        }
        default: {
            const weight_format &format = format_of(weights.type);
            return value_in_block(weights.type,
                                  data + column / format.block * uint64_t{format.bytes},
                                  column % format.block);
        }
    }
}

void read_row(const matrix &weights, uint32_t row, std::span<float> values) {
    assert(values.size() == weights.columns);
    for (uint32_t column = 0; column < weights.columns; ++column)
        values[column] = weight_at(weights, row, column);
}

}  // namespace moorage::core

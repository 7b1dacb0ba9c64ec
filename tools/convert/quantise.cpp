// quantise.cpp - formats with one scale per block, and the table of all formats.
#include "tools/convert/quantise.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/half.h"
#include "tools/convert/quantise_parts.h"

namespace moorage::core {

namespace {

using block = std::span<const float>;

float extreme_of(block x) {
    float most = 0;
    for (const float value : x)
        if (std::abs(value) > std::abs(most)) most = value;
    return most;
}

// Values are d (q - half); the greatest magnitude has q = 0.
template <int bits>
void to_centred(block x, std::byte *target) {
    constexpr float half = 1 << (bits - 1), top = 2 * half - 1;
    const float d = extreme_of(x) / -half, inverse = d == 0 ? 0 : 1 / d;
    put_half(target, d);
    put_codes<bits>(x, target + 2, [&](float value) {
        return static_cast<uint32_t>(
            std::min(std::max(value * inverse + (half + 0.5F), 0.0F), top + 0.5F));
    });
}

// Values are d q + m.
template <int bits>
void to_shifted(block x, std::byte *target) {
    constexpr float top = (1 << bits) - 1;
    const float low = *std::ranges::min_element(x), high = *std::ranges::max_element(x);
    const float d = (high - low) / top, inverse = d == 0 ? 0 : 1 / d;
    put_half(target, d);
    put_half(target + 2, low);
    put_codes<bits>(x, target + 4, [&](float value) {
        return static_cast<uint32_t>(std::min((value - low) * inverse + 0.5F, top + 0.5F));
    });
}

void to_q8_0(block x, std::byte *target) {
    const float d = std::abs(extreme_of(x)) / 127, inverse = d == 0 ? 0 : 1 / d;
    put_half(target, d);
    for (size_t i = 0; i < x.size(); ++i)
        target[2 + i] = std::byte(static_cast<int8_t>(std::lround(x[i] * inverse)));
}

// A value half way between two codes gets the even one, as in rounding.
uint32_t nearest_fp4(float value) {
    constexpr std::array<float, 7> borders = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};
    const float magnitude = std::abs(value);
    uint32_t code = 0;
    while (code < borders.size() &&
           (magnitude > borders[code] || (magnitude == borders[code] && code % 2 == 1)))
        ++code;
    return value < 0 && code != 0 ? code | 8 : code;
}

// Chooses the exponent that makes the greatest magnitude a code from 4 to 6.
void to_mxfp4(block x, std::byte *target) {
    const float most = std::abs(extreme_of(x));
    const int exponent = most == 0 ? 0 : std::clamp(std::ilogb(most) - 2 + 127, 0, 254);
    target[0] = std::byte(exponent);
    std::array<std::byte, 16> codes{};
    for (size_t i = 0; i < x.size(); ++i)
        codes[i % 16] |= std::byte(nearest_fp4(std::ldexp(x[i], 127 - exponent)) << i / 16 * 4);
    std::memcpy(target + 1, codes.data(), codes.size());
}

void to_bf16(block x, std::byte *target) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[0]);
    put(target, static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
}

using encoder = void (*)(block, std::byte *);
// Null: the format cannot be written.
encoder encoder_of(weight_type type) {
    switch (type) {
        case weight_type::f32:
            return [](block x, std::byte *target) { put(target, x[0]); };
        case weight_type::f16:
            return [](block x, std::byte *target) { put(target, half_of_float(x[0])); };
        case weight_type::bf16:
            return to_bf16;
        case weight_type::q8_0:
            return to_q8_0;
        case weight_type::q4_0:
            return to_centred<4>;
        case weight_type::q5_0:
            return to_centred<5>;
        case weight_type::q4_1:
            return to_shifted<4>;
        case weight_type::q5_1:
            return to_shifted<5>;
        case weight_type::mxfp4_gguf:
            return to_mxfp4;
        default:
            return nested_encoder_of(type);
    }
}

}  // namespace

bool can_quantise(weight_type type) { return encoder_of(type) != nullptr; }

void quantise_row(weight_type type, std::span<const float> row, std::span<std::byte> target) {
    const weight_format &format = format_of(type);
    const encoder encode = encoder_of(type);
    assert(encode != nullptr && row.size() % format.block == 0);
    assert(target.size() == bytes_of_columns(type, row.size()));
    for (size_t i = 0; i < row.size() / format.block; ++i)
        encode(row.subspan(i * format.block, format.block), target.data() + i * format.bytes);
}

uint8_t e4m3_of_float(float value) {
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    const float magnitude = std::min(std::abs(value), 448.0F);
    // Below 2^-6 the step size is that of the smallest normal number.
    const int exponent = magnitude < 0x1p-6F ? -6 : std::ilogb(magnitude);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
    // Eight steps up begins the next exponent.
    return static_cast<uint8_t>(sign | (steps + (exponent + 6) * 8));
}

float fp8_scale(float magnitude) { return magnitude == 0 ? 1 : magnitude / 448; }

}  // namespace moorage::core

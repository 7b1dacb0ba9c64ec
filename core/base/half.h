// half.h - conversion between the 16-bit floats of files (IEEE 754 binary16) and float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace moorage::core {

inline float float_of_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    // Subnormal: fraction * 2^-24, exact in float.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

// Rounds to the nearest, ties to even. Values that are too large become infinite.
inline uint16_t half_of_float(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u)  // below the smallest normal half: multiples of 2^-24
        return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(
                                                std::bit_cast<float>(magnitude) * 0x1p24f)));
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

}  // namespace moorage::core

// host_device.h - tools for code that runs on both host and GPU: markers, loads of 16 bytes,
// conversions between number formats.
//
// No header in this folder includes CUDA. The GPU compiler sees the same functions as the tests on
// the CPU. If the GPU has an instruction of its own, both variants stand side by side.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/half.h"

#if defined(__CUDACC__)
#define MOORAGE_HOST_DEVICE __host__ __device__
#else
#define MOORAGE_HOST_DEVICE
#endif
#if defined(__CUDA_ARCH__)
#define MOORAGE_UNROLL _Pragma("unroll")
#define MOORAGE_UNROLL_BY_TWO _Pragma("unroll 2")
#define MOORAGE_UNROLL_BY_FOUR _Pragma("unroll 4")
#define MOORAGE_UNROLL_BY_EIGHT _Pragma("unroll 8")
#else
#define MOORAGE_UNROLL
#define MOORAGE_UNROLL_BY_TWO
#define MOORAGE_UNROLL_BY_FOUR
#define MOORAGE_UNROLL_BY_EIGHT
#endif

namespace moorage::core::gpu {

constexpr uint32_t lanes = 32;  // lanes of a warp

struct alignas(16) words16 {
    uint32_t word[4];
};
struct alignas(16) floats4 {
    float value[4];
};
// An array that a thread keeps in registers.
template <class Value, uint32_t count>
struct numbers {
    Value value[count];
};

MOORAGE_HOST_DEVICE inline uint32_t ceil_div(uint32_t value, uint32_t divisor) {
    return (value + divisor - 1) / divisor;
}
MOORAGE_HOST_DEVICE inline uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
MOORAGE_HOST_DEVICE inline uint32_t larger(uint32_t a, uint32_t b) { return a < b ? b : a; }
MOORAGE_HOST_DEVICE inline float larger(float a, float b) { return a < b ? b : a; }
MOORAGE_HOST_DEVICE inline bool aligned16(const void *address) {
    return (reinterpret_cast<uintptr_t>(address) & 15) == 0;
}

MOORAGE_HOST_DEVICE inline float float_of_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    return std::bit_cast<float>(bits);
#endif
}
MOORAGE_HOST_DEVICE inline uint32_t bits_of_float(float value) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(value);
#else
    return std::bit_cast<uint32_t>(value);
#endif
}

// Weights are read once, so they need not stay in the first cache.
MOORAGE_HOST_DEVICE inline words16 load_stream(const std::byte *source) {
#if defined(__CUDA_ARCH__)
    words16 out;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
                 : "l"(source));
    return out;
#else
    words16 words;
    std::memcpy(&words, source, sizeof(words));
    return words;
#endif
}
MOORAGE_HOST_DEVICE inline words16 load16(const void *source) {
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const words16 *>(source);
#else
    words16 words;
    std::memcpy(&words, source, sizeof(words));
    return words;
#endif
}
// Two 16-bit values at once, the first in the lower half; aligned to 4 bytes.
MOORAGE_HOST_DEVICE inline uint32_t load_pair(const uint16_t *source) {
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const uint32_t *>(source);
#else
    return source[0] | static_cast<uint32_t>(source[1]) << 16;
#endif
}
MOORAGE_HOST_DEVICE inline void store16(void *target, const words16 &words) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<words16 *>(target) = words;
#else
    std::memcpy(target, &words, sizeof(words));
#endif
}
MOORAGE_HOST_DEVICE inline floats4 load4(const float *source) {
    return *reinterpret_cast<const floats4 *>(source);
}

MOORAGE_HOST_DEVICE inline float float_of_bf16(uint16_t bits) {
    return float_of_bits(static_cast<uint32_t>(bits) << 16);
}
// Rounds to nearest, ties to even. Values are finite.
MOORAGE_HOST_DEVICE inline uint16_t bf16_of_float(float value) {
    const uint32_t bits = bits_of_float(value);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// Two such numbers, the first in the lower half.
MOORAGE_HOST_DEVICE inline uint32_t bf16_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
    return out;
#else
    return bf16_of_float(first) | static_cast<uint32_t>(bf16_of_float(second)) << 16;
#endif
}
// Splits a value into a sum of two numbers that matrix units multiply: the nearest such number, and
// the one nearest to the rest.
MOORAGE_HOST_DEVICE inline void halve(float value, uint16_t &high, uint16_t &low) {
    high = bf16_of_float(value);
    low = bf16_of_float(value - float_of_bf16(high));
}
// Takes eight such numbers. The rest stays in `values`.
MOORAGE_HOST_DEVICE inline words16 take_bf16(float (&values)[8]) {
    words16 words;
    MOORAGE_UNROLL
    for (uint32_t n = 0; n < 4; ++n) {
        const uint32_t pair = bf16_pair(values[2 * n], values[2 * n + 1]);
        values[2 * n] -= float_of_bits(pair << 16);
        values[2 * n + 1] -= float_of_bits(pair & 0xffff0000u);
        words.word[n] = pair;
    }
    return words;
}
MOORAGE_HOST_DEVICE inline float float_of_f16(uint16_t bits) {
#if defined(__CUDA_ARCH__)
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
    return out;
#else
    return float_of_half(bits);
#endif
}
MOORAGE_HOST_DEVICE inline uint16_t f16_of_float(float value) {
#if defined(__CUDA_ARCH__)
    uint16_t out;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
    return out;
#else
    return half_of_float(value);
#endif
}
// A 4-bit float: sign, two bits of exponent, one of fraction. Its three lower bits, moved to the
// place where a float has them, give the value times 2^-126. This holds for the subnormal one too.
MOORAGE_HOST_DEVICE inline float float_of_fp4(uint32_t code) {
    return float_of_bits((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
}
// A power of two: 2^(bits - 127). 255 is NaN.
MOORAGE_HOST_DEVICE inline float float_of_scale(uint32_t bits) {
    return float_of_bits(bits == 0 ? 1u << 22 : bits == 255 ? 0x7fc00000u : bits << 23);
}

// The number type of a cache of keys and values: half precision or float32.
template <class Cache>
struct cached;
template <>
struct cached<uint16_t> {
    // Numbers added to a row in shared memory, so that neighbouring rows begin in different banks.
    static constexpr uint32_t padding = 8;
    static constexpr uint32_t wide = 8;  // numbers in 16 bytes
    MOORAGE_HOST_DEVICE static void widen(const words16 &source, float *target) {
        MOORAGE_UNROLL
        for (uint32_t n = 0; n < 4; ++n) {
            target[2 * n] = float_of_f16(static_cast<uint16_t>(source.word[n]));
            target[2 * n + 1] = float_of_f16(static_cast<uint16_t>(source.word[n] >> 16));
        }
    }
    MOORAGE_HOST_DEVICE static uint16_t from_float(float value) { return f16_of_float(value); }
    MOORAGE_HOST_DEVICE static float to_float(const uint16_t *source) {
        return float_of_f16(*source);
    }
    MOORAGE_HOST_DEVICE static void read_pair(const uint16_t *source, float &x, float &y) {
        const uint32_t pair = load_pair(source);
        x = float_of_f16(static_cast<uint16_t>(pair));
        y = float_of_f16(static_cast<uint16_t>(pair >> 16));
    }
};
template <>
struct cached<float> {
    static constexpr uint32_t padding = 4, wide = 4;
    MOORAGE_HOST_DEVICE static void widen(const words16 &source, float *target) {
        MOORAGE_UNROLL
        for (uint32_t n = 0; n < 4; ++n) target[n] = float_of_bits(source.word[n]);
    }
    MOORAGE_HOST_DEVICE static float from_float(float value) { return value; }
    MOORAGE_HOST_DEVICE static float to_float(const float *source) { return *source; }
    MOORAGE_HOST_DEVICE static void read_pair(const float *source, float &x, float &y) {
        x = source[0];
        y = source[1];
    }
};

MOORAGE_HOST_DEVICE inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

}  // namespace moorage::core::gpu

// kernels_codes_plain.h - the arithmetic of kernels_codes.h without vectors. For processors that
// have none, and as the reference for the others.
#pragma once

#include <cmath>
#include <limits>

#include "core/base/half.h"
#include "core/execute/cpu/kernels_codes.h"

namespace moorage::core {

// Rounds to binary16 if binary16 can hold the number with all its bits.
inline float as_half(float value) {
    const float size = std::abs(value);
    return size >= 0x1p-14F && size < 65504 ? float_of_half(half_of_float(value)) : value;
}
// The rounding of 16 or 32 activations to codes: code = nearest even integer of value * inverse.
struct code_rounding {
    float scale, inverse;
    float exact_scale;  // the scale before rounding
};
// `largest` of their magnitudes; `nonfinite`: 0 if all are finite. Magnitudes without an inverse in
// float32 count as zeros.
inline code_rounding code_rounding_of(uint32_t count, float largest, float nonfinite) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    if (nonfinite != 0) return {nan, 0, nan};
    if (largest < 1e-30F) return {0, 0, 0};
    const float exact_scale = largest / 127;
    return {count == CODE_BLOCK ? exact_scale : as_half(exact_scale), 127 / largest, exact_scale};
}
// Notes scale, sums and counts (of each 16) beside the codes.
inline void note_rounding(const code_rounding &rounding, uint32_t count, const int32_t *counts,
                          activation_chunk *chunk, uint32_t block) {
    int32_t total = 0;
    for (uint32_t i = 0; i < count / CODE_BLOCK; ++i) {
        chunk->scales[block + i] = rounding.scale;
        chunk->counts[block + i] = counts[i];
        chunk->sums[block + i] = 0;
        total += counts[i];
    }
    const float sum = rounding.exact_scale * static_cast<float>(total);
    chunk->sums[block] = count == CODE_BLOCK ? sum : as_half(sum);
}

const code_kernels &plain_codes();

}  // namespace moorage::core

// kernels_codes_plain.h - the arithmetic of kernels_codes.h without vectors: for processors that
// have none, and what the others are held against.
#pragma once

#include <cmath>
#include <limits>

#include "core/execute/cpu/kernels_codes.h"

namespace moorage::core {

// How 16 activations become codes: code = nearest even integer of value * inverse.
struct code_rounding {
    float scale, inverse;
};
// `largest` of their magnitudes; `none`: 0 where all are finite. Magnitudes without an inverse in
// float32 are zeros.
inline code_rounding code_rounding_of(float largest, float none) {
    if (none != 0) return {std::numeric_limits<float>::quiet_NaN(), 0};
    if (largest < 1e-30F) return {0, 0};
    return {largest / 127, 127 / largest};
}

const code_kernels &plain_codes();

}  // namespace moorage::core

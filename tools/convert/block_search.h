// block_search.h - searches for the scales with the least squared error, for formats whose scales
// are themselves codes.
//
// A group x is approximated by d q, or by d q - m with q from 0. The codes q are computed at trial
// scales around the one that follows from the extreme values. Then d (and m) are fitted to the
// codes by least squares. The best trial is kept.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moorage::core {

// The nearest integer, ties to even. Requires: |value| < 2^22.
inline float nearest_whole(float value) {
    constexpr float shift = 12582912.0F;  // 1.5 * 2^23
    return (value + shift) - shift;
}
// The nearest code from `least` to `most`.
inline float nearest_code(float value, float least, float most) {
    return nearest_whole(std::min(std::max(value, least), most));
}

struct linear_scale {
    float scale = 0, minimum = 0;  // x = scale q - minimum
};

// d for codes from -count to count - 1. Its sign lets the value of greatest magnitude be -count.
inline float symmetric_scale(std::span<const float> x, float count) {
    float most = 0;
    for (const float value : x)
        if (std::abs(value) > std::abs(most)) most = value;
    if (std::abs(most) < 1e-30F) return 0;
    float best = 0, best_gain = 0;
    constexpr int trials = 9;
    for (int trial = -trials; trial <= trials; ++trial) {
        const float inverse = -(count + 0.1F * static_cast<float>(trial)) / most;
        float with_code = 0, codes = 0;
        for (const float value : x) {
            const float code = nearest_code(inverse * value, -count, count - 1);
            with_code += value * code;
            codes += code * code;
        }
        // The squared error is sum x^2 minus this gain.
        if (codes == 0 || with_code * with_code <= best_gain * codes) continue;
        best = with_code / codes;
        best_gain = with_code * with_code / codes;
    }
    return best;
}

// Sums over a group of values x and codes q.
struct code_sums {
    float q = 0, qq = 0, x = 0, xq = 0, xx = 0;
    float error(const linear_scale &fit, float count) const {
        return xx - 2 * fit.scale * xq + 2 * fit.minimum * x + fit.scale * fit.scale * qq -
               2 * fit.scale * fit.minimum * q + count * fit.minimum * fit.minimum;
    }
};
// The best scale and minimum for the codes, neither below 0.
inline linear_scale fit_scale(const code_sums &sums, float count) {
    const float determinant = count * sums.qq - sums.q * sums.q;
    if (determinant > 0) {
        const linear_scale fit = {(count * sums.xq - sums.x * sums.q) / determinant,
                                  (sums.q * sums.xq - sums.x * sums.qq) / determinant};
        if (fit.scale >= 0 && fit.minimum >= 0) return fit;
    }
    return {sums.qq > 0 ? std::max(sums.xq / sums.qq, 0.0F) : 0, 0};
}

// Codes from 0 to `most`.
inline linear_scale shifted_scale(std::span<const float> x, float most) {
    const float low = std::min(*std::ranges::min_element(x), 0.0F);
    const float high = std::max(*std::ranges::max_element(x), low);
    const auto count = static_cast<float>(x.size());
    linear_scale best = {(high - low) / most, -low};
    if (high - low < 1e-30F) return {0, -low};
    float best_error = HUGE_VALF;
    constexpr int trials = 10;
    for (int trial = -trials; trial <= trials; ++trial) {
        const float inverse = (most + 0.1F * static_cast<float>(trial)) / (high - low);
        code_sums sums;
        for (const float value : x) {
            const float code = nearest_code(inverse * (value - low), 0, most);
            sums.q += code;
            sums.qq += code * code;
            sums.x += value;
            sums.xq += value * code;
            sums.xx += value * value;
        }
        const linear_scale fit = fit_scale(sums, count);
        const float error = sums.error(fit, count);
        if (error >= best_error) continue;
        best_error = error;
        best = fit;
    }
    return best;
}

}  // namespace moorage::core

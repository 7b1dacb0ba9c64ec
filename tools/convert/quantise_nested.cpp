// quantise_nested.cpp - formats with scales of scales: K-quants of 256 values, and IQ4.
#include <array>
#include <cmath>

#include "tools/convert/block_search.h"
#include "tools/convert/quantise_parts.h"

namespace moorage::core {

namespace {

using block = std::span<const float>;
constexpr size_t values_of_block = 256;
using codes_of_block = std::array<uint8_t, values_of_block>;

// Groups of a block as d s q. The scales s are integers from -span to span - 1, the codes from
// -count to count - 1.
template <size_t groups>
struct symmetric_block {
    float d = 0;                     // rounded to binary16
    std::array<int, groups> scales;  // s
    codes_of_block codes;            // q + count
};

template <size_t groups>
float encode_groups(block x, float d, const std::array<int, groups> &scales, float count,
                    codes_of_block &codes) {
    constexpr size_t width = values_of_block / groups;
    float error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const float scale = d * static_cast<float>(scales[i / width]);
        const float code = scale == 0 ? 0 : nearest_code(x[i] / scale, -count, count - 1);
        error += (x[i] - scale * code) * (x[i] - scale * code);
        codes[i] = static_cast<uint8_t>(code + count);
    }
    return error;
}

// The best d for the codes.
template <size_t groups>
float refit_scale(block x, const symmetric_block<groups> &source, float count) {
    constexpr size_t width = values_of_block / groups;
    float value_products = 0, squares = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const float unscaled = static_cast<float>(source.scales[i / width]) *
                               (static_cast<float>(source.codes[i]) - count);
        value_products += x[i] * unscaled;
        squares += unscaled * unscaled;
    }
    return squares == 0 ? source.d : as_half(value_products / squares);
}

template <size_t groups>
symmetric_block<groups> encode_symmetric(block x, float count, float span) {
    constexpr size_t width = values_of_block / groups;
    std::array<float, groups> group_scales;
    float most = 0;
    for (size_t group = 0; group < groups; ++group) {
        group_scales[group] = symmetric_scale(x.subspan(group * width, width), count);
        if (std::abs(group_scales[group]) > std::abs(most)) most = group_scales[group];
    }
    symmetric_block<groups> first_fit;
    first_fit.d = as_half(most / -span);
    for (size_t group = 0; group < groups; ++group)
        first_fit.scales[group] = first_fit.d == 0
                                      ? 0
                                      : static_cast<int>(nearest_code(
                                            group_scales[group] / first_fit.d, -span, span - 1));
    const float error = encode_groups(x, first_fit.d, first_fit.scales, count, first_fit.codes);
    symmetric_block<groups> refit = first_fit;
    refit.d = refit_scale(x, first_fit, count);
    if (refit.d != 0 && encode_groups(x, refit.d, refit.scales, count, refit.codes) < error)
        return refit;
    return first_fit;
}

// Groups as d s q - m n. s and n are integers from 0 to span, codes from 0 to `most`.
template <size_t groups>
struct shifted_block {
    float d = 0, m = 0;  // rounded to binary16
    std::array<uint32_t, groups> scales, minima;
    codes_of_block codes;
};

template <size_t groups>
float encode_groups(block x, float most, shifted_block<groups> &encoded) {
    constexpr size_t width = values_of_block / groups;
    float error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const float scale = encoded.d * static_cast<float>(encoded.scales[i / width]);
        const float minimum = encoded.m * static_cast<float>(encoded.minima[i / width]);
        const float code = scale == 0 ? 0 : nearest_code((x[i] + minimum) / scale, 0, most);
        const float difference = x[i] - (scale * code - minimum);
        error += difference * difference;
        encoded.codes[i] = static_cast<uint8_t>(code);
    }
    return error;
}

// The best d and m for the codes.
template <size_t groups>
void refit_scales(block x, shifted_block<groups> &encoded) {
    constexpr size_t width = values_of_block / groups;
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const double a = encoded.scales[i / width] * double{1} * encoded.codes[i],
                     b = encoded.minima[i / width];
        aa += a * a;
        ab += a * b;
        bb += b * b;
        xa += x[i] * a;
        xb += x[i] * b;
    }
    const double determinant = aa * bb - ab * ab;
    if (determinant <= 1e-9 * aa * bb) return;
    const double d = (xa * bb - xb * ab) / determinant, m = (xa * ab - xb * aa) / determinant;
    if (d <= 0 || m < 0) return;
    encoded.d = as_half(static_cast<float>(d));
    encoded.m = as_half(static_cast<float>(m));
}

template <size_t groups>
shifted_block<groups> encode_shifted(block x, float most, float span) {
    constexpr size_t width = values_of_block / groups;
    std::array<linear_scale, groups> group_scales;
    float scale_most = 0, minimum_most = 0;
    for (size_t group = 0; group < groups; ++group) {
        group_scales[group] = shifted_scale(x.subspan(group * width, width), most);
        scale_most = std::max(scale_most, group_scales[group].scale);
        minimum_most = std::max(minimum_most, group_scales[group].minimum);
    }
    shifted_block<groups> first_fit;
    first_fit.d = as_half(scale_most / span);
    first_fit.m = as_half(minimum_most / span);
    const auto to_scale_code = [&](float value, float unit) {
        return unit == 0 ? 0 : static_cast<uint32_t>(nearest_code(value / unit, 0, span));
    };
    for (size_t group = 0; group < groups; ++group) {
        first_fit.scales[group] = to_scale_code(group_scales[group].scale, first_fit.d);
        first_fit.minima[group] = to_scale_code(group_scales[group].minimum, first_fit.m);
    }
    const float error = encode_groups(x, most, first_fit);
    shifted_block<groups> refit = first_fit;
    refit_scales(x, refit);
    return encode_groups(x, most, refit) < error ? refit : first_fit;
}

// Two bits of 256 codes. Bit pair p of byte 32 h + i belongs to value 128 h + 32 p + i.
void put_two_bits(const codes_of_block &codes, uint32_t shift, std::byte *target) {
    for (size_t i = 0; i < values_of_block; ++i)
        target[i / 128 * 32 + i % 32] |= std::byte((codes[i] >> shift & 3) << i % 128 / 32 * 2);
}

void to_q2_k(block x, std::byte *target) {
    const auto encoded = encode_shifted<16>(x, 3, 15);
    std::fill_n(target, 84, std::byte{0});
    for (size_t group = 0; group < 16; ++group)
        target[group] = std::byte(encoded.scales[group] | encoded.minima[group] << 4);
    put_two_bits(encoded.codes, 0, target + 16);
    put_half(target + 80, encoded.d);
    put_half(target + 82, encoded.m);
}

void to_q3_k(block x, std::byte *target) {
    const auto encoded = encode_symmetric<16>(x, 4, 32);
    std::fill_n(target, 110, std::byte{0});
    for (size_t i = 0; i < values_of_block; ++i)
        target[i % 32] |= std::byte((encoded.codes[i] >> 2 & 1) << i / 32);
    put_two_bits(encoded.codes, 0, target + 32);
    for (size_t k = 0; k < 16; ++k) {
        const auto scale = static_cast<uint32_t>(encoded.scales[k] + 32);
        target[96 + k % 8] |= std::byte((scale & 15) << k / 8 * 4);
        target[104 + k % 4] |= std::byte((scale >> 4) << k / 4 * 2);
    }
    put_half(target + 108, encoded.d);
}

// Writes six bits each of eight scales and minima in 12 bytes.
void put_k_scales(const shifted_block<8> &encoded, std::byte *target) {
    for (size_t k = 0; k < 4; ++k) {
        target[k] |= std::byte(encoded.scales[k]);
        target[4 + k] |= std::byte(encoded.minima[k]);
        const uint32_t scale = encoded.scales[4 + k], minimum = encoded.minima[4 + k];
        target[8 + k] |= std::byte((scale & 15) | (minimum & 15) << 4);
        target[k] |= std::byte(scale >> 4 << 6);
        target[4 + k] |= std::byte(minimum >> 4 << 6);
    }
}

// Writes four bits: 32 bytes for each 64 values, the low halves first.
void put_nibbles_of_k(const codes_of_block &codes, std::byte *target) {
    for (size_t i = 0; i < values_of_block; ++i)
        target[i / 64 * 32 + i % 32] |= std::byte((codes[i] & 15) << i / 32 % 2 * 4);
}

void to_q4_k(block x, std::byte *target) {
    const auto encoded = encode_shifted<8>(x, 15, 63);
    std::fill_n(target, 144, std::byte{0});
    put_half(target, encoded.d);
    put_half(target + 2, encoded.m);
    put_k_scales(encoded, target + 4);
    put_nibbles_of_k(encoded.codes, target + 16);
}

void to_q5_k(block x, std::byte *target) {
    const auto encoded = encode_shifted<8>(x, 31, 63);
    std::fill_n(target, 176, std::byte{0});
    put_half(target, encoded.d);
    put_half(target + 2, encoded.m);
    put_k_scales(encoded, target + 4);
    for (size_t i = 0; i < values_of_block; ++i)
        target[16 + i % 32] |= std::byte((encoded.codes[i] >> 4) << i / 32);
    put_nibbles_of_k(encoded.codes, target + 48);
}

void to_q6_k(block x, std::byte *target) {
    const auto encoded = encode_symmetric<16>(x, 32, 128);
    std::fill_n(target, 210, std::byte{0});
    for (size_t i = 0; i < values_of_block; ++i) {
        const size_t half = i / 128, quarter = i / 32 % 4;
        target[64 * half + quarter % 2 * 32 + i % 32] |=
            std::byte((encoded.codes[i] & 15) << quarter / 2 * 4);
    }
    put_two_bits(encoded.codes, 4, target + 128);
    for (size_t k = 0; k < 16; ++k)
        target[192 + k] = std::byte(static_cast<int8_t>(encoded.scales[k]));
    put_half(target + 208, encoded.d);
}

constexpr std::array<float, 16> iq4_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

uint32_t iq4_code(float value) {
    uint32_t code = 0;
    while (code < 15 && value > (iq4_values[code] + iq4_values[code + 1]) / 2) ++code;
    return code;
}

// d for codes of the table.
float iq4_scale(block x) {
    float most = 0;
    for (const float value : x)
        if (std::abs(value) > std::abs(most)) most = value;
    if (std::abs(most) < 1e-30F) return 0;
    float best = 0, best_gain = 0;
    constexpr int trials = 7;
    for (int trial = -trials; trial <= trials; ++trial) {
        const float inverse = (iq4_values[0] + static_cast<float>(trial)) / most;
        float value_products = 0, squares = 0;
        for (const float value : x) {
            const float coded = iq4_values[iq4_code(value * inverse)];
            value_products += value * coded;
            squares += coded * coded;
        }
        if (value_products * value_products <= best_gain * squares) continue;
        best = value_products / squares;
        best_gain = value_products * value_products / squares;
    }
    return best;
}

void put_iq4_codes(block x, float scale, std::byte *target) {
    std::fill_n(target, 16, std::byte{0});
    for (size_t i = 0; i < x.size(); ++i)
        target[i % 16] |= std::byte(iq4_code(scale == 0 ? 0 : x[i] / scale) << i / 16 * 4);
}

void to_iq4_nl(block x, std::byte *target) {
    const float d = as_half(iq4_scale(x));
    put_half(target, d);
    put_iq4_codes(x, d, target + 2);
}

void to_iq4_xs(block x, std::byte *target) {
    std::array<float, 8> group_scales;
    float most = 0;
    for (size_t group = 0; group < 8; ++group) {
        group_scales[group] = iq4_scale(x.subspan(group * 32, 32));
        if (std::abs(group_scales[group]) > std::abs(most)) most = group_scales[group];
    }
    const float d = as_half(most / -32);
    uint16_t high = 0;
    put_half(target, d);
    std::fill_n(target + 4, 4, std::byte{0});
    for (size_t group = 0; group < 8; ++group) {
        const float scale = d == 0 ? 0 : nearest_code(group_scales[group] / d, -32, 31);
        const auto stored = static_cast<uint32_t>(scale + 32);
        target[4 + group / 2] |= std::byte((stored & 15) << group % 2 * 4);
        high = static_cast<uint16_t>(high | (stored >> 4) << 2 * group);
        put_iq4_codes(x.subspan(group * 32, 32), d * scale, target + 8 + 16 * group);
    }
    put(target + 2, high);
}

}  // namespace

void (*nested_encoder_of(weight_type type))(std::span<const float>, std::byte *) {
    switch (type) {
        case weight_type::q2_k:
            return to_q2_k;
        case weight_type::q3_k:
            return to_q3_k;
        case weight_type::q4_k:
            return to_q4_k;
        case weight_type::q5_k:
            return to_q5_k;
        case weight_type::q6_k:
            return to_q6_k;
        case weight_type::iq4_nl:
            return to_iq4_nl;
        case weight_type::iq4_xs:
            return to_iq4_xs;
        default:
            return nullptr;
    }
}

}  // namespace moorage::core

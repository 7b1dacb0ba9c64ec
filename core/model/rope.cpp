// rope.cpp - computes the frequencies of each kind of scaling in double and rounds them to float at
// the end.
#include "core/model/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace moorage::core {
namespace {

constexpr double two_pi = 2 * std::numbers::pi;

std::vector<double> plain_frequencies(double theta, uint32_t dimensions) {
    std::vector<double> frequencies(dimensions / 2);
    for (uint32_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] = std::pow(theta, -2.0 * i / dimensions);
    return frequencies;
}

// NTK-aware: the base grows with the context beyond the trained length. The slowest pair is
// stretched by as much as the context, and the fastest pair not at all.
double dynamic_theta(const rope_config &rope, uint64_t context) {
    const double trained = rope.original_positions;
    if (rope.dimensions <= 2 || trained <= 0 || static_cast<double>(context) <= trained)
        return rope.theta;
    const double stretch = rope.factor * static_cast<double>(context) / trained - (rope.factor - 1);
    return rope.theta * std::pow(stretch, rope.dimensions / (rope.dimensions - 2.0));
}

// YaRN 3.2: pairs that rotate often within the trained context stay unchanged. Pairs that do not
// complete a turn are interpolated. A ramp joins them.
void scale_yarn(const rope_config &rope, std::vector<double> &frequencies) {
    // The pair that completes `turns` turns within the trained context.
    const auto pair_of_turns = [&](double turns) {
        return rope.dimensions * std::log(rope.original_positions / (turns * two_pi)) /
               (2 * std::log(rope.theta));
    };
    double low = pair_of_turns(rope.beta_fast), high = pair_of_turns(rope.beta_slow);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, rope.dimensions - 1.0);
    if (low == high) high += 0.001;  // gives a step, as in the reference
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
    }
}

// By wavelength: short ones stay, long ones are interpolated, those between the two bounds are
// blended.
void scale_llama3(const rope_config &rope, std::vector<double> &frequencies) {
    const double trained = rope.original_positions;
    const double low = rope.low_frequency_factor, high = rope.high_frequency_factor;
    for (double &frequency : frequencies) {
        const double wavelength = two_pi / frequency;
        if (wavelength < trained / high) continue;
        if (wavelength > trained / low) {
            frequency /= rope.factor;
            continue;
        }
        const double kept = high > low ? (trained / wavelength - low) / (high - low) : 1;
        frequency = (1 - kept) * frequency / rope.factor + kept * frequency;
    }
}

bool is_long_context(const rope_config &rope, uint64_t context) {
    return context > rope.original_positions;
}

void scale_longrope(const rope_config &rope, uint64_t context, std::vector<double> &frequencies) {
    const std::vector<double> &factors =
        is_long_context(rope, context) ? rope.long_factor : rope.short_factor;
    assert(factors.size() == frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double attention_factor(const rope_config &rope) {
    const bool scaled = rope.kind == rope_kind::yarn || rope.kind == rope_kind::longrope;
    if (!scaled) return 1;
    if (rope.attention_factor != 0) return rope.attention_factor;
    if (rope.kind == rope_kind::longrope)
        return rope.factor <= 1 || rope.original_positions <= 1
                   ? 1
                   : std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_positions));
    if (rope.mscale != 0 && rope.mscale_all != 0)
        return yarn_magnitude(rope.factor, rope.mscale) /
               yarn_magnitude(rope.factor, rope.mscale_all);
    return yarn_magnitude(rope.factor, 1);
}

}  // namespace

uint64_t rope_scaling_of(const rope_config &rope, uint64_t length) {
    if (!is_long_context(rope, length)) return 0;
    if (rope.kind == rope_kind::longrope) return rope.short_factor == rope.long_factor ? 0 : 1;
    return rope.kind == rope_kind::dynamic ? length : 0;
}

rope_rotation compute_rope_rotation(const rope_config &rope, uint64_t context) {
    assert(rope.dimensions % 2 == 0);
    const double theta =
        rope.kind == rope_kind::dynamic ? dynamic_theta(rope, context) : rope.theta;
    std::vector<double> frequencies = plain_frequencies(theta, rope.dimensions);
    switch (rope.kind) {
        case rope_kind::linear:
            for (double &frequency : frequencies) frequency /= rope.factor;
            break;
        case rope_kind::yarn:
            scale_yarn(rope, frequencies);
            break;
        case rope_kind::llama3:
            scale_llama3(rope, frequencies);
            break;
        case rope_kind::longrope:
            scale_longrope(rope, context, frequencies);
            break;
        case rope_kind::plain:
        case rope_kind::dynamic:
            break;
    }
    rope_rotation turn;
    turn.frequencies.assign(frequencies.begin(), frequencies.end());
    turn.attention_factor = static_cast<float>(attention_factor(rope));
    return turn;
}

rope_rotations::rope_rotations(const rope_config &rope)
    : rope_(rope), trained_(compute_rope_rotation(rope, 0)) {}

const rope_rotation &rope_rotations::turn_for_length(uint64_t length) {
    const uint64_t scaling = rope_scaling_of(rope_, length);
    if (scaling == 0) return trained_;
    if (scaling != beyond_scaling_) beyond_ = compute_rope_rotation(rope_, length);
    beyond_scaling_ = scaling;
    return beyond_;
}

void rope_angles(const rope_rotation &turn, uint32_t position, std::span<float> cosines,
                 std::span<float> sines) {
    assert(cosines.size() == turn.frequencies.size() && sines.size() == cosines.size());
    for (size_t i = 0; i < cosines.size(); ++i) {
        // The reference multiplies in float. At far positions this rounding is part of the model.
        const double angle = static_cast<float>(position) * turn.frequencies[i];
        cosines[i] = static_cast<float>(std::cos(angle)) * turn.attention_factor;
        sines[i] = static_cast<float>(std::sin(angle)) * turn.attention_factor;
    }
}

void rope_rotate(bool interleaved, std::span<const float> cosines, std::span<const float> sines,
                 float *values) {
    const size_t pairs = cosines.size();
    const size_t step = interleaved ? 2 : 1, distance = interleaved ? 1 : pairs;
    for (size_t i = 0; i < pairs; ++i) {
        float &first = values[i * step], &second = values[i * step + distance];
        const float x = first, y = second;
        first = x * cosines[i] - y * sines[i];
        second = y * cosines[i] + x * sines[i];
    }
}

}  // namespace moorage::core

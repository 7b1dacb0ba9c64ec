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
    std::vector<double> out(dimensions / 2);
    for (uint32_t i = 0; i < out.size(); ++i) out[i] = std::pow(theta, -2.0 * i / dimensions);
    return out;
}

// NTK-aware: the base grows with the context beyond the trained length. The slowest pair is
// stretched by as much as the context, and the fastest pair not at all.
double dynamic_theta(const rope_config &of, uint64_t context) {
    const double trained = of.original_positions;
    if (of.dimensions <= 2 || trained <= 0 || static_cast<double>(context) <= trained)
        return of.theta;
    const double stretch = of.factor * static_cast<double>(context) / trained - (of.factor - 1);
    return of.theta * std::pow(stretch, of.dimensions / (of.dimensions - 2.0));
}

// YaRN 3.2: pairs that rotate often within the trained context stay unchanged. Pairs that do not
// complete a turn are interpolated. A ramp joins them.
void scale_yarn(const rope_config &of, std::vector<double> &frequencies) {
    // The pair that completes `turns` turns within the trained context.
    const auto pair_of_turns = [&](double turns) {
        return of.dimensions * std::log(of.original_positions / (turns * two_pi)) /
               (2 * std::log(of.theta));
    };
    double low = pair_of_turns(of.beta_fast), high = pair_of_turns(of.beta_slow);
    if (of.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, of.dimensions - 1.0);
    if (low == high) high += 0.001;  // gives a step, as in the reference
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequencies[i] = frequencies[i] / of.factor * ramp + frequencies[i] * (1 - ramp);
    }
}

// By wavelength: short ones stay, long ones are interpolated, those between the two bounds are
// blended.
void scale_llama3(const rope_config &of, std::vector<double> &frequencies) {
    const double trained = of.original_positions;
    const double low = of.low_frequency_factor, high = of.high_frequency_factor;
    for (double &frequency : frequencies) {
        const double wavelength = two_pi / frequency;
        if (wavelength < trained / high) continue;
        if (wavelength > trained / low) {
            frequency /= of.factor;
            continue;
        }
        const double kept = high > low ? (trained / wavelength - low) / (high - low) : 1;
        frequency = (1 - kept) * frequency / of.factor + kept * frequency;
    }
}

bool long_context(const rope_config &of, uint64_t context) {
    return context > of.original_positions;
}

void scale_longrope(const rope_config &of, uint64_t context, std::vector<double> &frequencies) {
    const std::vector<double> &factors =
        long_context(of, context) ? of.long_factor : of.short_factor;
    assert(factors.size() == frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double attention_factor(const rope_config &of) {
    const bool scaled = of.kind == rope_kind::yarn || of.kind == rope_kind::longrope;
    if (!scaled) return 1;
    if (of.attention_factor != 0) return of.attention_factor;
    if (of.kind == rope_kind::longrope)
        return of.factor <= 1 || of.original_positions <= 1
                   ? 1
                   : std::sqrt(1 + std::log(of.factor) / std::log(of.original_positions));
    if (of.mscale != 0 && of.mscale_all != 0)
        return yarn_magnitude(of.factor, of.mscale) / yarn_magnitude(of.factor, of.mscale_all);
    return yarn_magnitude(of.factor, 1);
}

}  // namespace

uint64_t rope_scaling_of(const rope_config &of, uint64_t length) {
    if (!long_context(of, length)) return 0;
    if (of.kind == rope_kind::longrope) return of.short_factor == of.long_factor ? 0 : 1;
    return of.kind == rope_kind::dynamic ? length : 0;
}

rope_turn rope_turn_of(const rope_config &of, uint64_t context) {
    assert(of.dimensions % 2 == 0);
    const double theta = of.kind == rope_kind::dynamic ? dynamic_theta(of, context) : of.theta;
    std::vector<double> frequencies = plain_frequencies(theta, of.dimensions);
    switch (of.kind) {
        case rope_kind::linear:
            for (double &frequency : frequencies) frequency /= of.factor;
            break;
        case rope_kind::yarn:
            scale_yarn(of, frequencies);
            break;
        case rope_kind::llama3:
            scale_llama3(of, frequencies);
            break;
        case rope_kind::longrope:
            scale_longrope(of, context, frequencies);
            break;
        case rope_kind::plain:
        case rope_kind::dynamic:
            break;
    }
    rope_turn turn;
    turn.frequencies.assign(frequencies.begin(), frequencies.end());
    turn.attention_factor = static_cast<float>(attention_factor(of));
    return turn;
}

rope_turns::rope_turns(const rope_config &of) : of_(of), trained_(rope_turn_of(of, 0)) {}

const rope_turn &rope_turns::of_length(uint64_t length) {
    const uint64_t scaling = rope_scaling_of(of_, length);
    if (scaling == 0) return trained_;
    if (scaling != beyond_scaling_) beyond_ = rope_turn_of(of_, length);
    beyond_scaling_ = scaling;
    return beyond_;
}

void rope_angles(const rope_turn &turn, uint32_t position, std::span<float> cosines,
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
    const size_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : pairs;
    for (size_t i = 0; i < pairs; ++i) {
        float &first = values[i * step], &second = values[i * step + apart];
        const float x = first, y = second;
        first = x * cosines[i] - y * sines[i];
        second = y * cosines[i] + x * sines[i];
    }
}

}  // namespace moorage::core

// sampler.cpp - greedy choice, and drawing from the most probable tokens.
#include "core/source/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

namespace moorage::core {

namespace {

// In sixteen at once, so that none waits for the one before. Requires: not empty, numbers.
float largest(std::span<const float> values) {
    constexpr size_t lanes = 16;
    float most[lanes];
    std::fill(std::begin(most), std::end(most), values[0]);
    size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes)
        for (size_t lane = 0; lane < lanes; ++lane)
            most[lane] = most[lane] < values[i + lane] ? values[i + lane] : most[lane];
    for (; i < values.size(); ++i) most[0] = std::max(most[0], values[i]);
    return *std::max_element(std::begin(most), std::end(most));
}

}  // namespace

// A vocabulary has a hundred thousand tokens: by blocks, which are compared as vectors.
int32_t most_probable(std::span<const float> logits) {
    constexpr size_t block = 64;
    const float top = largest(logits);
    size_t begin = 0;
    for (; begin + block <= logits.size(); begin += block) {
        uint32_t there = 0;
        for (size_t i = begin; i < begin + block; ++i) there |= logits[i] == top;
        if (there) break;
    }
    const auto found = std::find(logits.begin() + static_cast<ptrdiff_t>(begin), logits.end(), top);
    // Of what is no number there is no largest.
    return found == logits.end() ? 0 : static_cast<int32_t>(found - logits.begin());
}

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
    const double top = largest(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
    return std::log(sum) + (top - static_cast<double>(logits[static_cast<size_t>(token)]));
}

namespace {

// exp(x) of x <= 0, within 3e-7 of it, without a call, so that a loop of it is one of vectors: 2^n
// times a polynomial of what is left, at most half of ln 2. Below -80 it is that of -80.
inline float exponential(float x) {
    constexpr float rounding = 12'582'912;  // 1.5 x 2^23: whole numbers lie in the lowest bits
    constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, per_ln2 = 1.44269504f;
    // As whole numbers, which for negative ones grow with their size; a comparison would be a
    // branch.
    x = std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(-80.0f)));
    const float shifted = x * per_ln2 + rounding, whole = shifted - rounding;
    const float rest = (x - whole * ln2_high) - whole * ln2_low;
    const float third = 1.0f / 6 + rest * (1.0f / 24 + rest * (1.0f / 120 + rest * (1.0f / 720)));
    const float sum = 1 + rest * (1 + rest * (0.5f + rest * third));
    const uint32_t power =
        (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(rounding) + 127) << 23;
    return sum * std::bit_cast<float>(power);
}

// In eight sums, so that none waits for the one before.
double sum_of(std::span<const float> values) {
    double sums[8] = {};
    size_t i = 0;
    for (; i + 8 <= values.size(); i += 8)
        for (size_t lane = 0; lane < 8; ++lane) sums[lane] += values[i + lane];
    for (; i < values.size(); ++i) sums[0] += values[i];
    return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

}  // namespace

void sampler::weigh(std::span<const float> logits) {
    constexpr double factor_max = 1e30, seldom = 10;  // drawn with e^-10 of the largest chance
    const auto factor = static_cast<float>(std::min(1 / how_.temperature, factor_max));
    const float top = largest(logits);
    weights_.resize(logits.size());
    for (size_t id = 0; id < logits.size(); ++id)
        weights_[id] = exponential((logits[id] - top) * factor);
    collect(logits, static_cast<double>(top) - seldom * how_.temperature);
}

// Tokens with logits of `least` or more: the front of all in their order.
void sampler::collect(std::span<const float> logits, double least) {
    ranked_.clear();
    sorted_ = 0;
    for (size_t id = 0; id < logits.size(); ++id)
        if (!(static_cast<double>(logits[id]) < least))
            ranked_.emplace_back(logits[id], static_cast<int32_t>(id));
}

// The token of rank `index`, the most probable first; sorts so far only, since those that are drawn
// stand in a short front of a long list.
int32_t sampler::ranked(std::span<const float> logits, size_t index) {
    if (index >= ranked_.size()) collect(logits, -std::numeric_limits<double>::infinity());
    while (index >= sorted_) {
        const size_t next = std::min(ranked_.size(), std::max<size_t>(64, 4 * sorted_));
        const auto at = [&](size_t place) {
            return ranked_.begin() + static_cast<ptrdiff_t>(place);
        };
        std::partial_sort(at(sorted_), at(next), ranked_.end(), [](const auto &a, const auto &b) {
            return a.first > b.first || (a.first == b.first && a.second < b.second);
        });
        sorted_ = next;
    }
    return ranked_[index].second;
}

int32_t sampler::operator()(std::span<const float> logits, random_stream &draws) {
    if (how_.temperature <= 0) return most_probable(logits);
    weigh(logits);
    const auto weight_at = [&](size_t index) {
        return weights_[static_cast<size_t>(ranked(logits, index))];
    };
    size_t count = logits.size();
    double sum = 0;
    if (how_.top_k != 0 && how_.top_k < count) {
        count = how_.top_k;
        for (size_t i = 0; i < count; ++i) sum += weight_at(i);
    } else {
        sum = sum_of(weights_);
    }
    // The smallest set of the most probable that has top_p of the mass.
    double kept = sum;
    size_t last = count - 1;
    if (how_.top_p < 1) {
        kept = 0;
        for (last = 0; last + 1 < count; ++last) {
            kept += weight_at(last);
            if (kept >= how_.top_p * sum) break;
        }
        if (last + 1 == count) kept = sum;
    }
    double drawn = draws.unit() * kept;
    for (size_t i = 0; i < last; ++i) {
        drawn -= weight_at(i);
        if (drawn < 0) return ranked(logits, i);
    }
    return ranked(logits, last);
}

}  // namespace moorage::core

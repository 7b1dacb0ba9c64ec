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

// Sixteen maxima in parallel, so that no comparison waits for the one before. Requires: not empty,
// no NaN.
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

// A vocabulary has a hundred thousand tokens. Blocks of it are compared as vectors.
int32_t most_probable(std::span<const float> logits) {
    constexpr size_t block = 64;
    const float top = largest(logits);
    size_t begin = 0;
    for (; begin + block <= logits.size(); begin += block) {
        uint32_t matches = 0;
        for (size_t i = begin; i < begin + block; ++i) matches |= logits[i] == top;
        if (matches) break;
    }
    const auto found = std::find(logits.begin() + static_cast<ptrdiff_t>(begin), logits.end(), top);
    // If there are NaNs, there may be no largest.
    return found == logits.end() ? 0 : static_cast<int32_t>(found - logits.begin());
}

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
    const double top = largest(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
    return std::log(sum) + (top - static_cast<double>(logits[static_cast<size_t>(token)]));
}

namespace {

// exp(x) for x <= 0, within 3e-7, without a call, so that the compiler can vectorise loops. 2^n
// times a polynomial of the rest, which is at most half of ln 2. Below -80 the result is that of
// -80.
inline float exponential(float x) {
    constexpr float rounding = 12'582'912;  // 1.5 x 2^23: integers are in the lowest bits
    constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, per_ln2 = 1.44269504f;
    // Compares as integers, which grow with the magnitude of negative floats. A float comparison
    // would be a branch.
    x = std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(-80.0f)));
    const float shifted = x * per_ln2 + rounding, whole = shifted - rounding;
    const float rest = (x - whole * ln2_high) - whole * ln2_low;
    const float third = 1.0f / 6 + rest * (1.0f / 24 + rest * (1.0f / 120 + rest * (1.0f / 720)));
    const float sum = 1 + rest * (1 + rest * (0.5f + rest * third));
    const uint32_t power =
        (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(rounding) + 127) << 23;
    return sum * std::bit_cast<float>(power);
}

// Eight sums in parallel, so that no addition waits for the one before.
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
    constexpr double factor_max = 1e30, seldom = 10;  // drawn with e^-10 of the largest probability
    const auto factor = static_cast<float>(std::min(1 / sampling_.temperature, factor_max));
    const float top = largest(logits);
    weights_.resize(logits.size());
    for (size_t id = 0; id < logits.size(); ++id)
        weights_[id] = exponential((logits[id] - top) * factor);
    collect(logits, static_cast<double>(top) - seldom * sampling_.temperature);
}

// Collects tokens with logits of at least `least`: the first ones in descending order.
void sampler::collect(std::span<const float> logits, double least) {
    ranked_.clear();
    sorted_ = 0;
    for (size_t id = 0; id < logits.size(); ++id)
        if (!(static_cast<double>(logits[id]) < least))
            ranked_.emplace_back(logits[id], static_cast<int32_t>(id));
}

// The token of rank `index`, the most probable first. Sorts only up to this rank, because drawn
// tokens are near the front of a long list.
int32_t sampler::ranked(std::span<const float> logits, size_t index) {
    if (index >= ranked_.size()) collect(logits, -std::numeric_limits<double>::infinity());
    while (index >= sorted_) {
        const size_t next = std::min(ranked_.size(), std::max<size_t>(64, 4 * sorted_));
        const auto entry = [&](size_t place) {
            return ranked_.begin() + static_cast<ptrdiff_t>(place);
        };
        std::partial_sort(
            entry(sorted_), entry(next), ranked_.end(), [](const auto &a, const auto &b) {
                return a.first > b.first || (a.first == b.first && a.second < b.second);
            });
        sorted_ = next;
    }
    return ranked_[index].second;
}

std::span<const float> sampler::penalised(std::span<const float> logits,
                                          std::span<const int32_t> prompt,
                                          std::span<const int32_t> written) {
    const size_t total = prompt.size() + written.size();
    const size_t window = sampling_.penalty_window == 0 ? total : sampling_.penalty_window;
    const auto newest = written.last(std::min(written.size(), window));
    const auto prompt_tail = prompt.last(std::min(prompt.size(), window - newest.size()));
    recent_.assign(prompt_tail.begin(), prompt_tail.end());
    recent_.insert(recent_.end(), newest.begin(), newest.end());
    std::ranges::sort(recent_);
    penalised_.assign(logits.begin(), logits.end());
    for (auto same = recent_.begin(); same != recent_.end();) {
        const auto next = std::upper_bound(same, recent_.end(), *same);
        const auto times = static_cast<double>(next - same);
        float &logit = penalised_[static_cast<size_t>(*same)];
        double value = static_cast<double>(logit);
        value = value > 0 ? value / sampling_.repetition : value * sampling_.repetition;
        logit = static_cast<float>(value - sampling_.presence - times * sampling_.frequency);
        same = next;
    }
    return penalised_;
}

int32_t sampler::operator()(std::span<const float> logits, random_stream &draws,
                            std::span<const int32_t> prompt, std::span<const int32_t> written) {
    return (*this)(sampling_.penalises() ? penalised(logits, prompt, written) : logits, draws);
}

// How many of the most probable `count` tokens have top_p of their mass. `kept`: the mass before,
// and after.
size_t sampler::kept_by_mass(std::span<const float> logits, size_t count, double &kept) {
    if (sampling_.top_p >= 1) return count;
    const double wanted = sampling_.top_p * kept;
    double sum = 0;
    for (size_t i = 0; i + 1 < count; ++i) {
        sum += weight_at(logits, i);
        if (sum < wanted) continue;
        kept = sum;
        return i + 1;
    }
    return count;
}

// Drops tokens below min_p of the largest probability. Goes from the front, because most of a
// vocabulary is dropped.
void sampler::drop_seldom(std::span<const float> logits, size_t &count, double &kept) {
    if (sampling_.min_p <= 0) return;
    const double least = sampling_.min_p * weight_at(logits, 0);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        const double weight = weight_at(logits, i);
        if (i > 0 && weight < least) {
            count = i;
            kept = sum;
            return;
        }
        sum += weight;
    }
}

int32_t sampler::operator()(std::span<const float> logits, random_stream &draws) {
    if (sampling_.temperature <= 0) return most_probable(logits);
    weigh(logits);
    size_t count = logits.size();
    double kept = 0;
    if (sampling_.top_k != 0 && sampling_.top_k < count) {
        count = sampling_.top_k;
        for (size_t i = 0; i < count; ++i) kept += weight_at(logits, i);
    } else {
        kept = sum_of(weights_);
    }
    count = kept_by_mass(logits, count, kept);
    drop_seldom(logits, count, kept);
    double drawn = draws.unit() * kept;
    for (size_t i = 0; i + 1 < count; ++i) {
        drawn -= weight_at(logits, i);
        if (drawn < 0) return ranked(logits, i);
    }
    return ranked(logits, count - 1);
}

}  // namespace moorage::core

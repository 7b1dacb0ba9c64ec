// sampler.cpp - greedy choice, and drawing from the most probable tokens.
#include "core/source/sampler.h"

#include <algorithm>
#include <cmath>

namespace moorage::core {

int32_t most_probable(std::span<const float> logits) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
    return std::log(sum) + (top - static_cast<double>(logits[static_cast<size_t>(token)]));
}

// Sorts as far as `index`, the most probable first: the tokens that are drawn stand in a short
// front of a long list.
float sampler::weight_at(size_t index, double top) {
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
    return static_cast<float>(
        std::exp((static_cast<double>(ranked_[index].first) - top) / how_.temperature));
}

int32_t sampler::operator()(std::span<const float> logits) {
    if (how_.temperature <= 0) return most_probable(logits);
    ranked_.clear();
    for (size_t id = 0; id < logits.size(); ++id)
        ranked_.emplace_back(logits[id], static_cast<int32_t>(id));
    sorted_ = 0;
    const double top = *std::max_element(logits.begin(), logits.end());
    size_t count = ranked_.size();
    double sum = 0;
    if (how_.top_k != 0 && how_.top_k < count) {
        count = how_.top_k;
        for (size_t i = 0; i < count; ++i) sum += weight_at(i, top);
    } else {
        for (const float logit : logits)
            sum += std::exp((static_cast<double>(logit) - top) / how_.temperature);
    }
    // The smallest set of the most probable that has top_p of the mass.
    double kept = sum;
    size_t last = count - 1;
    if (how_.top_p < 1) {
        kept = 0;
        for (last = 0; last + 1 < count; ++last) {
            kept += weight_at(last, top);
            if (kept >= how_.top_p * sum) break;
        }
        if (last + 1 == count) kept = sum;
    }
    double drawn = random_.unit() * kept;
    for (size_t i = 0; i < last; ++i) {
        drawn -= weight_at(i, top);
        if (drawn < 0) return ranked_[i].second;
    }
    return ranked_[last].second;
}

}  // namespace moorage::core

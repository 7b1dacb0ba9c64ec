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

int32_t sampler::operator()(std::span<const float> logits) {
    if (how_.temperature <= 0) return most_probable(logits);
    ranked_.clear();
    for (size_t id = 0; id < logits.size(); ++id)
        ranked_.emplace_back(logits[id], static_cast<int32_t>(id));
    const size_t count =
        how_.top_k == 0 ? ranked_.size() : std::min<size_t>(how_.top_k, ranked_.size());
    const auto better = [](const auto &a, const auto &b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<ptrdiff_t>(count),
                      ranked_.end(), better);
    ranked_.resize(count);
    const double top = ranked_.front().first;
    double sum = 0;
    for (auto &[value, id] : ranked_) {
        const double weight = std::exp((static_cast<double>(value) - top) / how_.temperature);
        value = static_cast<float>(weight);
        sum += weight;
    }
    // The smallest set of the most probable that has top_p of the mass.
    double kept = 0;
    size_t last = 0;
    for (; last + 1 < count; ++last) {
        kept += ranked_[last].first;
        if (kept >= how_.top_p * sum) break;
    }
    if (last + 1 == count) kept = sum;
    double drawn = random_.unit() * kept;
    for (size_t i = 0; i < last; ++i) {
        drawn -= ranked_[i].first;
        if (drawn < 0) return ranked_[i].second;
    }
    return ranked_[last].second;
}

}  // namespace moorage::core

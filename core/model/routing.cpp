// routing.cpp - the rules for choosing experts, one function per kind of score.
#include "core/model/routing.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

namespace moorage::core {
namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();
// Added to the sum that divides the weights, as in the reference. Sigmoid scores may all be zero.
constexpr double sum_floor = 1e-20;

void softmax(std::span<const float> logits, std::span<float> out) {
    float largest = lowest;
    for (const float logit : logits) largest = std::max(largest, logit);
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        const double power = std::exp(static_cast<double>(logits[i]) - largest);
        out[i] = static_cast<float>(power);
        sum += power;
    }
    for (float &value : out) value = static_cast<float>(value / sum);
}

void sigmoid(std::span<const float> logits, std::span<float> out) {
    for (size_t i = 0; i < logits.size(); ++i)
        out[i] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logits[i]))));
}

// The indices of the largest values, best first; of equal values the first. -infinity is used only
// if nothing else is left.
void largest_of(std::span<const float> values, std::span<uint32_t> out) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < values.size(); ++i) {
        uint32_t place = found;
        while (place > 0 && values[i] > values[out[place - 1]]) --place;
        if (place == out.size()) continue;
        if (found < out.size()) ++found;
        for (uint32_t j = found - 1; j > place; --j) out[j] = out[j - 1];
        out[place] = i;
    }
    assert(found == out.size());
}

// Sets scores outside the chosen groups to -infinity.
void keep_groups(const router_config &rule, std::span<float> scores) {
    const size_t width = scores.size() / rule.groups;
    std::vector<float> of_group(rule.groups);
    for (uint32_t group = 0; group < rule.groups; ++group) {
        float best = lowest, second = lowest;
        for (const float score : scores.subspan(group * width, width)) {
            if (score > best) {
                second = best;
                best = score;
            } else {
                second = std::max(second, score);
            }
        }
        const bool both = rule.group == group_rule::best_two && width > 1;
        of_group[group] = both ? best + second : best;
    }
    std::vector<uint32_t> kept(rule.groups_chosen);
    largest_of(of_group, kept);
    for (uint32_t group = 0; group < rule.groups; ++group)
        if (std::find(kept.begin(), kept.end(), group) == kept.end())
            std::ranges::fill(scores.subspan(group * width, width), lowest);
}

// Phi-3.5-MoE: the weight of a chosen expert is its softmax over a set of experts. The set excludes
// those chosen before it and those below it by more than the threshold, relative to the larger of
// the two magnitudes.
void weigh_sparsemixer(double jitter, std::span<const float> logits,
                       std::span<const uint32_t> chosen, std::span<float> weights) {
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
        weights[rank] = 0;
        if (chosen[rank] >= logits.size()) continue;
        const float pivot = logits[chosen[rank]];
        const std::span<const uint32_t> before = chosen.first(rank);
        double sum = 0;
        for (uint32_t i = 0; i < logits.size(); ++i) {
            if (std::find(before.begin(), before.end(), i) != before.end()) continue;
            const float below = (pivot - logits[i]) / std::max(std::abs(logits[i]), pivot);
            if (below > static_cast<float>(2 * jitter)) continue;
            sum += std::exp(static_cast<double>(logits[i]) - pivot);
        }
        weights[rank] = static_cast<float>(1 / sum);
    }
}

}  // namespace

routing_rule::routing_rule(const model_config &of)
    : rule_(of.router), experts_(of.experts), top_k_(of.top_k) {}

void routing_rule::scores(std::span<const float> logits, std::span<float> out) const {
    assert(logits.size() == experts_ && out.size() == experts_);
    if (rule_.score == score_kind::sigmoid)
        sigmoid(logits, out);
    else
        softmax(logits, out);
}

void routing_rule::choose(std::span<const float> logits, std::span<const float> correction,
                          std::span<uint32_t> chosen, std::span<float> weights) const {
    assert(logits.size() == experts_ && chosen.size() == top_k_ && weights.size() == top_k_);
    assert(correction.empty() || correction.size() == experts_);
    const bool of_logits =
        rule_.score == score_kind::softmax_of_chosen || rule_.score == score_kind::sparsemixer;
    std::vector<float> by(logits.begin(), logits.end());
    if (!of_logits) scores(logits, by);
    for (size_t i = 0; i < correction.size(); ++i) by[i] += correction[i];
    if (rule_.group != group_rule::none && rule_.groups > 1) keep_groups(rule_, by);
    largest_of(by, chosen);
    weigh(logits, chosen, weights);
}

void routing_rule::weigh(std::span<const float> logits, std::span<const uint32_t> chosen,
                         std::span<float> weights) const {
    assert(logits.size() == experts_ && weights.size() == chosen.size());
    if (rule_.score == score_kind::sparsemixer) {
        weigh_sparsemixer(rule_.jitter, logits, chosen, weights);
        return;
    }
    // Softmax over the chosen equals softmax over all, divided by its sum over the chosen.
    const bool of_chosen = rule_.score == score_kind::softmax_of_chosen;
    if (of_chosen) {
        float largest = lowest;
        for (const uint32_t expert : chosen)
            if (expert < experts_) largest = std::max(largest, logits[expert]);
        for (size_t rank = 0; rank < chosen.size(); ++rank)
            weights[rank] = chosen[rank] < experts_
                                ? static_cast<float>(
                                      std::exp(static_cast<double>(logits[chosen[rank]]) - largest))
                                : 0;
    } else {
        std::vector<float> all(experts_);
        scores(logits, all);
        for (size_t rank = 0; rank < chosen.size(); ++rank)
            weights[rank] = chosen[rank] < experts_ ? all[chosen[rank]] : 0;
    }
    double factor = rule_.scale;
    if (of_chosen || rule_.normalise) {
        double sum = sum_floor;
        for (const float weight : weights) sum += weight;
        factor /= sum;
    }
    for (float &weight : weights) weight = static_cast<float>(weight * factor);
}

}  // namespace moorage::core

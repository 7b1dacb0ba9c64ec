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

void softmax(std::span<const float> logits, std::span<float> scores) {
    float largest = lowest;
    for (const float logit : logits) largest = std::max(largest, logit);
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        const double power = std::exp(static_cast<double>(logits[i]) - largest);
        scores[i] = static_cast<float>(power);
        sum += power;
    }
    for (float &value : scores) value = static_cast<float>(value / sum);
}

void sigmoid(std::span<const float> logits, std::span<float> scores) {
    for (size_t i = 0; i < logits.size(); ++i)
        scores[i] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logits[i]))));
}

// The indices of the largest values, best first; of equal values the first. -infinity is used only
// if nothing else is left.
void largest_of(std::span<const float> values, std::span<uint32_t> indices) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < values.size(); ++i) {
        uint32_t rank = found;
        while (rank > 0 && values[i] > values[indices[rank - 1]]) --rank;
        if (rank == indices.size()) continue;
        if (found < indices.size()) ++found;
        for (uint32_t j = found - 1; j > rank; --j) indices[j] = indices[j - 1];
        indices[rank] = i;
    }
    assert(found == indices.size());
}

// Sets scores outside the chosen groups to -infinity.
void keep_groups(const router_config &rule, std::span<float> scores) {
    const size_t width = scores.size() / rule.groups;
    std::vector<float> group_scores(rule.groups);
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
        const bool counts_second = rule.group == group_rule::best_two && width > 1;
        group_scores[group] = counts_second ? best + second : best;
    }
    std::vector<uint32_t> kept_groups(rule.groups_chosen);
    largest_of(group_scores, kept_groups);
    for (uint32_t group = 0; group < rule.groups; ++group)
        if (std::find(kept_groups.begin(), kept_groups.end(), group) == kept_groups.end())
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
        const std::span<const uint32_t> previous = chosen.first(rank);
        double sum = 0;
        for (uint32_t i = 0; i < logits.size(); ++i) {
            if (std::find(previous.begin(), previous.end(), i) != previous.end()) continue;
            const float below = (pivot - logits[i]) / std::max(std::abs(logits[i]), pivot);
            if (below > static_cast<float>(2 * jitter)) continue;
            sum += std::exp(static_cast<double>(logits[i]) - pivot);
        }
        weights[rank] = static_cast<float>(1 / sum);
    }
}

}  // namespace

routing_rule::routing_rule(const model_config &config)
    : rule_(config.router), experts_(config.experts), top_k_(config.top_k) {}

void routing_rule::scores(std::span<const float> logits, std::span<float> gate_scores) const {
    assert(logits.size() == experts_ && gate_scores.size() == experts_);
    if (rule_.score == score_kind::sigmoid)
        sigmoid(logits, gate_scores);
    else
        softmax(logits, gate_scores);
}

void routing_rule::choose(std::span<const float> logits, std::span<const float> correction,
                          std::span<uint32_t> chosen, std::span<float> weights) const {
    assert(logits.size() == experts_ && chosen.size() == top_k_ && weights.size() == top_k_);
    assert(correction.empty() || correction.size() == experts_);
    const bool ranks_logits =
        rule_.score == score_kind::softmax_of_chosen || rule_.score == score_kind::sparsemixer;
    std::vector<float> ranking(logits.begin(), logits.end());
    if (!ranks_logits) scores(logits, ranking);
    for (size_t i = 0; i < correction.size(); ++i) ranking[i] += correction[i];
    if (rule_.group != group_rule::none && rule_.groups > 1) keep_groups(rule_, ranking);
    largest_of(ranking, chosen);
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
    const bool over_chosen = rule_.score == score_kind::softmax_of_chosen;
    if (over_chosen) {
        float largest = lowest;
        for (const uint32_t expert : chosen)
            if (expert < experts_) largest = std::max(largest, logits[expert]);
        for (size_t rank = 0; rank < chosen.size(); ++rank)
            weights[rank] = chosen[rank] < experts_
                                ? static_cast<float>(
                                      std::exp(static_cast<double>(logits[chosen[rank]]) - largest))
                                : 0;
    } else {
        std::vector<float> gate_scores(experts_);
        scores(logits, gate_scores);
        for (size_t rank = 0; rank < chosen.size(); ++rank)
            weights[rank] = chosen[rank] < experts_ ? gate_scores[chosen[rank]] : 0;
    }
    double factor = rule_.scale;
    if (over_chosen || rule_.normalise) {
        double sum = sum_floor;
        for (const float weight : weights) sum += weight;
        factor /= sum;
    }
    for (float &weight : weights) weight = static_cast<float>(weight * factor);
}

}  // namespace moorage::core

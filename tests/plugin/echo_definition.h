// echo_definition.h - echo, lin and ema by their definition, in double and without tricks.
//
// Nothing here is shared with the plugins. Scores of all lags are kept as in the definition,
// features are spelled out one by one, and every victim is found by a look at all candidates.
#pragma once

#include <set>

#include "harness.h"

namespace moorage::test {

struct echo_options {
    bool matches = true, transitions = false;
    uint32_t window = 4096, best = 8;
    double carry = 0.3, sharpness = 0.07, learning_rate = 3e-4, discount = 0.75, position = 3;
};

class echo_definition {
public:
    echo_definition(const cache_shape &cache, const echo_options &options)
        : shape(cache),
          options_(options),
          share_(double(cache.top_k) / cache.experts),
          history_(cache.layers) {
        const expert_state fresh{{share_, share_, share_, share_}, 0, 0, 0.5, {}};
        experts_.assign(cache.pages(), fresh);
        visits_.assign(cache.layers, 0);
        request_visits_.assign(cache.layers, 0);
        last_.resize(cache.layers);
        pairs_.assign(size_t{cache.pages()} * cache.experts, share_);
        pair_counts_.assign(cache.pages(), 0);
        weights_ = {log_odds(share_), 0, 0.9, 0.9, 0.9, 0.9, 0};
        if (options.transitions) weights_.push_back(0);
        if (options.matches) weights_.insert(weights_.end(), {0, 0});
        moments_.assign(weights_.size(), 0);
        squares_.assign(weights_.size(), 0);
    }

    void observe(uint32_t layer, const std::vector<uint32_t> &chosen) {
        layer_ = layer;
        const std::set<uint32_t> used(chosen.begin(), chosen.end());
        const std::vector<double> match_scores =
            options_.matches ? update_matches(layer, used) : std::vector<double>{};
        const double n = visits_[layer]++;
        ++request_visits_[layer];
        for (uint32_t e = 0; e < shape.experts; ++e) {
            expert_state &state = state_of(layer, e);
            const double y = used.contains(e) ? 1 : 0;
            for (int i = 0; i < 4; ++i) {
                const double half_life = std::pow(4.0, i) * 2;
                const double a = std::max(1 - std::exp2(-1 / half_life), 1 / (n + 8));
                state.rates[i] += a * (y - state.rates[i]);
            }
            state.count += y;
            state.request_count += y;
        }
        if (options_.transitions) learn_pairs(layer, used);
        std::vector<double> slope(weights_.size(), 0);
        for (uint32_t e = 0; e < shape.experts; ++e) {
            expert_state &state = state_of(layer, e);
            const std::vector<double> x = features(layer, e, chosen, match_scores);
            double z = 0;
            for (size_t f = 0; f < x.size(); ++f) z += weights_[f] * x[f];
            const double value = 1 / (1 + std::exp(-z));
            const double target = used.contains(e) ? 1 : options_.discount * value;
            for (size_t f = 0; f < state.features.size(); ++f)
                slope[f] += (state.value - target) * state.features[f] / shape.experts;
            state.value = value;
            state.features = x;
        }
        if (n > 0) update_weights(slope);
    }

    // The wait until the next use, by the place in the round.
    double wait(uint32_t page) const {
        const double value = experts_[page].value;
        const uint32_t layer = page / shape.experts;
        const uint32_t distance = (layer + shape.layers - layer_ - 1) % shape.layers + 1;
        const double visits = (1 - value) / (value * (1 - options_.discount));
        return shape.shared ? visits + options_.position * distance / shape.layers : visits;
    }
    const std::vector<double> &weights() const { return weights_; }
    const cache_shape shape;

private:
    struct expert_state {
        double rates[4];
        double count, request_count, value;
        std::vector<double> features;
    };
    expert_state &state_of(uint32_t layer, uint32_t e) {
        return experts_[layer * shape.experts + e];
    }
    static double log_odds(double p) {
        p = std::min(std::max(p, 1e-4), 1 - 1e-4);
        return std::log(p / (1 - p));
    }

    // Sums over the best matches for each expert, first next, then soon, and last the weight of
    // all.
    std::vector<double> update_matches(uint32_t layer, const std::set<uint32_t> &used) {
        auto &rows = history_[layer];
        const size_t t = rows.size(), lags = std::min<size_t>(t, options_.window);
        if (scores_.size() <= lags) scores_.resize(lags + 1, 0);
        if (layer == 0)
            for (float &score : scores_) score *= static_cast<float>(options_.carry);
        std::vector<size_t> order;
        for (size_t d = 1; d <= lags; ++d) {
            for (const uint32_t e : used) scores_[d] += rows[t - d].contains(e) ? 1.0f : 0.0f;
            order.push_back(d);
        }
        rows.push_back(used);
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return scores_[a] > scores_[b]; });
        order.resize(std::min<size_t>(order.size(), options_.best));
        std::vector<double> sums(2 * shape.experts + 1, 0);
        for (const size_t d : order) {
            const double weight = std::exp((double{scores_[d]} - scores_[order[0]]) /
                                           (options_.sharpness * shape.layers * shape.top_k));
            sums.back() += weight;
            for (uint32_t e = 0; e < shape.experts; ++e) {
                if (rows[t - d + 1].contains(e)) sums[e] += weight;
                for (size_t h = 2; h <= 16 && t - d + h <= t; ++h)
                    if (rows[t - d + h].contains(e)) {
                        sums[shape.experts + e] += weight * std::pow(0.9, h - 1);
                        break;
                    }
            }
        }
        return sums;
    }

    void learn_pairs(uint32_t layer, const std::set<uint32_t> &used) {
        for (const uint32_t previous : last_[layer]) {
            const size_t row = size_t{layer} * shape.experts + previous;
            const double rate = std::max(0.005, 1.0 / (++pair_counts_[row] + 1));
            for (uint32_t e = 0; e < shape.experts; ++e) {
                double &p = pairs_[row * shape.experts + e];
                p += rate * ((used.contains(e) ? 1 : 0) - p);
            }
        }
        last_[layer] = used;
    }

    std::vector<double> features(uint32_t layer, uint32_t e, const std::vector<uint32_t> &chosen,
                                 const std::vector<double> &match_scores) {
        const expert_state &state = state_of(layer, e);
        const double cumulative = (state.count + 20 * share_) / (visits_[layer] + 20);
        const double request =
            (state.request_count + 8 * cumulative) / (request_visits_[layer] + 8);
        double rate[4];
        for (int i = 0; i < 4; ++i) rate[i] = log_odds(state.rates[i]);
        std::vector<double> x = {1,
                                 rate[0] - rate[1],
                                 rate[1] - rate[2],
                                 rate[2] - rate[3],
                                 rate[3] - log_odds(cumulative),
                                 log_odds(cumulative) - log_odds(share_),
                                 log_odds(request) - rate[2]};
        if (options_.transitions) {
            double sum = 0;
            for (const uint32_t s : chosen)
                sum += pairs_[(size_t{layer} * shape.experts + s) * shape.experts + e];
            x.push_back(log_odds(sum / static_cast<double>(chosen.size())) - rate[2]);
        }
        if (options_.matches) {
            const double total = match_scores.back() + 0.3, prior = state.rates[2];
            x.push_back(log_odds((match_scores[e] + 0.3 * prior) / total) - rate[2]);
            const double soon = match_scores[shape.experts + e] + 0.3 * std::min(0.9, 4 * prior);
            x.push_back(log_odds(soon / total) - rate[2]);
        }
        return x;
    }

    void update_weights(const std::vector<double> &slope) {
        ++updates_;
        for (size_t f = 0; f < weights_.size(); ++f) {
            moments_[f] = 0.98 * moments_[f] + 0.02 * slope[f];
            squares_[f] = 0.999 * squares_[f] + 0.001 * slope[f] * slope[f];
            const double moment = moments_[f] / (1 - std::pow(0.98, updates_));
            const double square = squares_[f] / (1 - std::pow(0.999, updates_));
            weights_[f] -= options_.learning_rate * moment / (std::sqrt(square) + 1e-8);
        }
    }

    const echo_options options_;
    const double share_;
    uint32_t layer_ = 0, updates_ = 0;
    std::vector<std::vector<std::set<uint32_t>>> history_;  // [layer][token]
    std::vector<float> scores_;  // [lag] single, as ties of sums of powers of the carry decide
    std::vector<expert_state> experts_;
    std::vector<double> visits_, request_visits_, pairs_, pair_counts_;
    std::vector<std::set<uint32_t>> last_;
    std::vector<double> weights_, moments_, squares_;
};

}  // namespace moorage::test

// use_values.hpp - learns for every expert of every layer how soon it will be used again.
//
// The value V of an expert estimates E[discount^(visits of its layer before the next use)]. It is a
// logistic regression on log-odds of use rates: decayed with half-lives of 2, 8, 32 and 128 visits,
// over all visits, in the running request, and chances of use that the policy adds ("extras").
// Rates enter as differences of neighbours, extras as differences to the rate of half-life 32.
// These inputs are nearly orthogonal, so one weight vector for all layers and plain Adam suffice.
// At each visit the values of the visit before are corrected: towards 1 if the expert was used now,
// else towards discount * V of now (TD learning).
//
// Use rates belong to the cache. A visit by several streams counts an expert once, whichever stream
// used it, because the cache only needs to know that some stream will. Request rates and extras
// belong to a stream. They are joined as the chance that at least one stream uses the expert. A
// visit with more tokens than streams is a prefill. It counts as that many visits with the mean
// use, and teaches nothing.
//
// Cost per visit: one pass of about 25 operations a feature over the layer's experts, O(1) else.
#pragma once

#include <cmath>
#include <moorage/moorage.hpp>

#include "lanes.hpp"

namespace learning {

// The tokens of a step by stream, in order of first appearance.
class stream_groups {
public:
    struct group {
        uint32_t stream, tokens, last;  // last: index of the group's last token in the step
        uint64_t request;
    };

    void activate(const moorage::limits &limits) {
        places_.assign(limits.requests_max, none_found);
        groups_.reserve(limits.requests_max);
    }
    void gather(const moorage::step &step) {
        groups_.clear();
        for (uint32_t token = 0; token < step.token_count; ++token) {
            const uint32_t stream = step.host_streams[token];
            uint32_t &place = places_[stream];
            if (place == none_found) {
                place = static_cast<uint32_t>(groups_.size());
                groups_.push_back({stream, 0, token, step.host_requests[token]});
            }
            ++groups_[place].tokens;
            groups_[place].last = token;
        }
        for (const group &group : groups_) places_[group.stream] = none_found;
    }
    std::span<const group> all() const { return groups_; }

private:
    std::vector<uint32_t> places_;  // [streams] for the step being gathered
    std::vector<group> groups_;
};

class use_values {
public:
    static constexpr uint32_t rate_count = 4, features_max = 9;
    static constexpr uint32_t fields = rate_count + 2 + features_max;

    struct options {
        float discount, learning_rate;
        uint32_t extras;  // 1 (the request) and the policy's own extras
    };

    void activate(const moorage::limits &limits, const lane_kernels &lanes,
                  const options &options) {
        lanes_ = &lanes;
        options_ = options;
        layers_ = limits.layers;
        experts_ = limits.experts;
        padded_ = padded_to_lanes(experts_);
        base_rate_ =
            static_cast<float>(std::min(limits.top_k, experts_)) / static_cast<float>(experts_);
        base_ = log_odds(base_rate_);
        state_.assign(size_t{layers_} * fields * padded_);
        request_counts_.assign(size_t{limits.requests_max} * layers_ * padded_);
        requests_.resize(size_t{limits.requests_max} * layers_);
        visits_.resize(layers_);
        for (auto *array : {&used_, &real_, &cumulative_}) array->assign(padded_);
        for (auto &array : extras_) array.assign(padded_);
        gradient_.assign(16 * features_max);
        double root = 0.5;
        for (uint32_t halvings = 1, rate = 0; rate < rate_count; ++halvings) {
            root = std::sqrt(root);  // 2^(-1 / 2^halvings), the same on every machine
            if (halvings % 2 == 1) keep_[rate++] = static_cast<float>(root);
        }
    }

    void reset() {
        const float value = base_rate_ / (1 - options_.discount * (1 - base_rate_));
        state_.fill(0);
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            float *rates = block_of(layer);
            for (uint32_t i = 0; i < rate_count * padded_; ++i) rates[i] = base_rate_;
            for (uint32_t i = 0; i < padded_; ++i) values_of(layer)[i] = value;
        }
        for (uint32_t i = 0; i < experts_; ++i) real_[i] = 1;
        request_counts_.fill(0);
        std::fill(requests_.begin(), requests_.end(), request{});
        std::fill(visits_.begin(), visits_.end(), 0);
        std::fill(std::begin(moment_), std::end(moment_), 0.0);
        std::fill(std::begin(square_), std::end(square_), 0.0);
        for (uint32_t f = 0; f < features_max; ++f) weights_[f] = f >= 2 && f <= 5 ? 0.9 : 0;
        weights_[0] = base_;
        moment_left_ = square_left_ = 1;
    }

    // Updates the rates with the uses of this step. Then call join_extra for each stream, then
    // learn.
    void count(const moorage::step &step, std::span<const stream_groups::group> groups) {
        const auto streams = static_cast<uint32_t>(groups.size());
        layer_ = step.layer;
        prefill_ = step.token_count > streams;
        const uint32_t worth = step.token_count / streams;  // visits
        const float share = 1.0f / static_cast<float>(worth);
        used_.fill(0);
        for (uint32_t i = 0; i < step.distinct_count; ++i) {
            const uint32_t tokens = step.host_distinct_tokens ? step.host_distinct_tokens[i] : 1;
            used_[step.host_distinct[i]] =
                prefill_ ? std::min(1.0f, static_cast<float>(tokens) * share) : 1.0f;
        }
        float *rates = block_of(layer_);
        double &visits = visits_[layer_];
        for (uint32_t rate = 0; rate < rate_count; ++rate) {
            const float least = 1.0f / (static_cast<float>(visits) + 8);
            float keep = std::min(keep_[rate], 1 - least);
            if (prefill_) keep = power(keep, worth);
            lanes_->approach(rates + size_t{rate} * padded_, used_.data(), 1 - keep, padded_);
        }
        visits += worth;
        float *counts = counts_of(layer_);
        if (prefill_)
            lanes_->add_scaled(counts, used_.data(), static_cast<float>(worth), padded_);
        else
            lanes_->add_scaled(counts, used_.data(), 1, padded_);
        lanes_->mean_rates(cumulative_.data(), counts, count_prior * base_rate_,
                           1 / (static_cast<float>(visits) + count_prior), padded_);
        streams_ = streams;
    }

    // The rate in the request of one stream; `first`: the first stream of the step.
    void join_request(const moorage::step &step, const stream_groups::group &group, bool first) {
        const size_t place = size_t{group.stream} * layers_ + layer_;
        request &request = requests_[place];
        float *counts = request_counts_.data() + place * padded_;
        if (request.id != group.request || request.visits == 0) {
            for (uint32_t i = 0; i < padded_; ++i) counts[i] = 0;
            request = {group.request, 0};
        }
        if (step.token_count == 1)
            for (const uint32_t expert : step.distinct()) counts[expert] += 1;
        else
            for (uint32_t token = 0; token < step.token_count; ++token)
                if (step.host_streams[token] == group.stream)
                    for (const uint32_t expert : step.chosen(token)) counts[expert] += 1;
        request.visits += static_cast<float>(group.tokens);
        join_extra(0, counts, cumulative_.data(),
                   {request_prior, 1, 1, 1 / (request.visits + request_prior), first});
    }

    // (part + prior * min(most, gain * rate)) * inverse, joined with the streams before.
    void join_extra(uint32_t extra, const float *part, const float *rate, const blend &blend) {
        lanes_->join(extras_[extra].data(), part, rate, blend, padded_);
    }

    void learn() {
        float weights[features_max];
        for (uint32_t f = 0; f < features_max; ++f) weights[f] = static_cast<float>(weights_[f]);
        value_step step{};
        step.padded = padded_, step.extras = options_.extras;
        step.rates = block_of(layer_);
        step.cumulative = cumulative_.data();
        for (uint32_t extra = 0; extra < 3; ++extra) step.extra[extra] = extras_[extra].data();
        step.used = used_.data(), step.real = real_.data();
        step.weights = weights;
        step.base = base_, step.discount = options_.discount;
        step.values = values_of(layer_);
        step.features = features_of(layer_);
        step.gradient = gradient_.data();
        const bool visited_before = step.features[0] != 0;
        lanes_->value_step(step);
        if (visited_before && !prefill_) descend();
    }

    float *values_of(uint32_t layer) { return block_of(layer) + size_t{rate_count + 1} * padded_; }
    const float *rate_of(uint32_t layer, uint32_t rate) {
        return block_of(layer) + size_t{rate} * padded_;
    }
    const float *used() const { return used_.data(); }
    uint32_t padded() const { return padded_; }
    uint32_t streams() const { return streams_; }  // of the step
    float base_rate() const { return base_rate_; }
    float log_odds(float chance) const {
        alignas(64) float lanes[16];
        for (float &lane : lanes) lane = chance;
        lanes_->log_odds(lanes, lanes, 16);
        return lanes[0];
    }

private:
    static constexpr float count_prior = 20, request_prior = 8;
    struct request {
        uint64_t id;
        float visits;
    };
    // A layer's block: rates, counts, values, features; [padded] each.
    float *block_of(uint32_t layer) { return state_.data() + size_t{layer} * fields * padded_; }
    float *counts_of(uint32_t layer) { return block_of(layer) + size_t{rate_count} * padded_; }
    float *features_of(uint32_t layer) {
        return block_of(layer) + size_t{rate_count + 2} * padded_;
    }

    static float power(float base, uint32_t exponent) {
        float result = 1;
        for (; exponent > 0; exponent >>= 1, base *= base)
            if (exponent & 1) result *= base;
        return result;
    }

    // One step of Adam against the mean gradient over the layer's experts, in a fixed order.
    void descend() {
        constexpr double keep_moment = 0.98, keep_square = 0.999, tiny = 1e-8;
        moment_left_ *= keep_moment;
        square_left_ *= keep_square;
        for (uint32_t f = 0; f < 6 + options_.extras; ++f) {
            float parts[16];
            for (uint32_t i = 0; i < 16; ++i) parts[i] = gradient_[16 * f + i];
            for (uint32_t half = 8; half > 0; half /= 2)
                for (uint32_t i = 0; i < half; ++i) parts[i] += parts[i + half];
            const double slope = static_cast<double>(parts[0]) / experts_;
            moment_[f] = keep_moment * moment_[f] + (1 - keep_moment) * slope;
            square_[f] = keep_square * square_[f] + (1 - keep_square) * slope * slope;
            weights_[f] -= static_cast<double>(options_.learning_rate) *
                           (moment_[f] / (1 - moment_left_)) /
                           (std::sqrt(square_[f] / (1 - square_left_)) + tiny);
        }
    }

    const lane_kernels *lanes_ = nullptr;
    options options_{};
    uint32_t layers_ = 0, experts_ = 0, padded_ = 0, layer_ = 0, streams_ = 1;
    bool prefill_ = false;
    float base_rate_ = 0, base_ = 0;
    float keep_[rate_count] = {};
    lane_array<float> state_;           // [layers][fields][padded]
    lane_array<float> request_counts_;  // [streams][layers][padded]
    std::vector<request> requests_;     // [streams][layers]
    std::vector<double> visits_;        // [layers]
    lane_array<float> used_, real_, cumulative_, extras_[3], gradient_;
    double weights_[features_max], moment_[features_max], square_[features_max];
    double moment_left_ = 1, square_left_ = 1;
};

}  // namespace learning

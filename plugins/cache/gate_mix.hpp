// gate_mix.hpp - one probability from two predictions: the routing history's and the gate's.
//
// A gate predicts by applying the next layer's router to this layer's activations. The worth of its
// scores differs by model. So the class reads only the ranks, and learns online for each rank the
// share that came true. A logistic regression of three weights mixes its log-odds with those of the
// history. It also learns whenever a predicted layer shows its routing. Cost: O(experts of a layer)
// a prediction, and as much again when it is settled.
#pragma once

#include <algorithm>

#include "use_values.hpp"

namespace learning {

class gate_mix {
public:
    void activate(const moorage::limits &limits, const lane_kernels &lanes) {
        lanes_ = &lanes;
        experts_ = limits.experts;
        top_k_ = limits.top_k;
        padded_ = padded_to_lanes(experts_);
        rates_.resize(size_t{experts_} + 1);
        ranks_.assign(experts_);
        for (auto *array : {&gate_, &history_, &mixed_, &unlisted_}) array->assign(padded_);
        listed_.reserve(experts_);
        reset();
    }
    void reset() {
        for (uint32_t rank = 0; rank <= experts_; ++rank)
            rates_[rank] = {rank < top_k_ ? 0.7f : 0.05f, 8};
        weights_[0] = 0, weights_[1] = 0.5f, weights_[2] = 0.8f;
        layer_ = none_found;
    }

    // Mixes for `layer`. `chances` are the history's and are replaced.
    void mix(uint32_t layer, std::span<const uint32_t> predicted, float *chances) {
        layer_ = layer;
        listed_.assign(predicted.begin(), predicted.end());
        const float unlisted = rates_[experts_].share;
        for (uint32_t expert = 0; expert < experts_; ++expert) {
            ranks_[expert] = experts_;
            gate_[expert] = unlisted;
        }
        for (uint32_t rank = 0; rank < predicted.size(); ++rank) {
            ranks_[predicted[rank]] = rank;
            gate_[predicted[rank]] = rates_[rank].share;
        }
        lanes_->log_odds(gate_.data(), gate_.data(), padded_);
        lanes_->log_odds(history_.data(), chances, padded_);
        for (uint32_t i = 0; i < padded_; ++i)
            mixed_[i] = weights_[0] + weights_[1] * history_[i] + weights_[2] * gate_[i];
        lanes_->chances(mixed_.data(), mixed_.data(), padded_);
        std::copy(mixed_.data(), mixed_.data() + padded_, chances);
    }

    // Takes what the layer then used. Learns if the last mix was for this layer.
    void settle(uint32_t layer, const float *used) {
        if (layer != layer_) return;
        layer_ = none_found;
        uint32_t unlisted = experts_;
        for (uint32_t rank = 0; rank < listed_.size(); ++rank) {
            const uint32_t expert = listed_[rank];
            if (ranks_[expert] != rank) continue;  // listed again later
            rates_[rank].learn(used[expert]);
            --unlisted;
        }
        // The sums are taken one by one, in this order; their terms are computed in vectors.
        for (uint32_t expert = 0; expert < experts_; ++expert) {
            const float error = mixed_[expert] - used[expert];
            mixed_[expert] = error;
            history_[expert] *= error;
            gate_[expert] *= error;
            unlisted_[expert] = ranks_[expert] == experts_ ? used[expert] : 0;
        }
        float slope[3] = {};
        float unlisted_used = 0;
        for (uint32_t expert = 0; expert < experts_; ++expert) {
            slope[0] += mixed_[expert];
            slope[1] += history_[expert];
            slope[2] += gate_[expert];
            unlisted_used += unlisted_[expert];
        }
        if (unlisted > 0) rates_[experts_].learn(unlisted_used / static_cast<float>(unlisted));
        for (uint32_t i = 0; i < 3; ++i)
            weights_[i] -= 0.01f * slope[i] / static_cast<float>(experts_);
    }

private:
    struct rate {
        float share, seen;
        void learn(float used) {
            seen += 1;
            share += std::max(0.002f, 1 / seen) * (used - share);
        }
    };
    const lane_kernels *lanes_ = nullptr;
    uint32_t experts_ = 0, top_k_ = 0, padded_ = 0;
    uint32_t layer_ = none_found;  // the layer of the last mix
    std::vector<rate> rates_;      // [experts + 1] by rank; the last: not listed
    lane_array<uint32_t> ranks_;   // [experts] in the last prediction
    lane_array<float> gate_, history_, mixed_, unlisted_;
    std::vector<uint32_t> listed_;  // in the last prediction, best first
    float weights_[3] = {};
};

}  // namespace learning

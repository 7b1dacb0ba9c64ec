// value_order.hpp - the next victim by learned values, over all layers.
//
// In a shared cache the page with the greatest
//     (1 - V) / (V (1 - discount)) + position * D / layers
// is evicted. The first term is the expected number of visits without use. D is the number of layer
// steps until the expert's layer comes up again (1 .. layers). Within a layer only V decides. So
// each layer has one candidate, and the order looks for a new one only after something in the layer
// changed. In a cache of one layer the least V is evicted. Ties: the smallest page of a layer, then
// the furthest layer. Cost: O(layers + experts of a layer) a victim.
#pragma once

#include "use_values.hpp"

namespace learning {

class value_order {
public:
    void activate(const moorage::limits &limits, const uint32_t *state, const lane_kernels &lanes,
                  float discount, float position) {
        lanes_ = &lanes;
        state_ = state;
        layers_ = limits.layers;
        experts_ = limits.experts;
        shared_ = limits.pools == 1;
        discount_ = discount;
        position_ = position / static_cast<float>(layers_);
        candidates_.resize(layers_);
        taken_.resize(size_t{layers_} * experts_);
        named_.reserve(taken_.size());
    }
    void reset() {
        for (candidate &candidate : candidates_) candidate = {none_found, 0, false};
        std::fill(taken_.begin(), taken_.end(), uint8_t{0});
        layer_ = 0;
    }

    // The pins of the layer before end, and the values of this layer change.
    void visit(uint32_t layer) {
        candidates_[layer_].fresh = false;
        candidates_[layer].fresh = false;
        layer_ = layer;
    }
    void mark_changed(uint32_t page) { candidates_[page / experts_].fresh = false; }

    void victims(const moorage::room &room, moorage::pages &victims, use_values &values) {
        candidates_[layer_].fresh = false;  // pins may have come or gone
        named_.clear();
        if (!shared_) {
            while (!victims.full() && find_candidate(room.pool, values)) take(room.pool, victims);
        } else {
            for (bool again = true; !victims.full();) {
                const uint32_t layer = furthest_layer(values);
                if (layer != none_found) {
                    take(layer, victims);
                } else if (again) {
                    for (candidate &candidate : candidates_) candidate.fresh = again = false;
                } else {
                    break;
                }
            }
        }
        for (const uint32_t page : named_) {
            taken_[page] = 0;
            mark_changed(page);
        }
    }

    // The key of the order: the number of visits for which an expert is expected to be of no use,
    // if it has this value and its layer comes up in `steps` layer steps.
    float wait(float value, uint32_t steps) const {
        return visits(value) + position_ * static_cast<float>(steps);
    }
    // The wait of the page that a pool would evict next; below 0: there is none.
    float longest_wait(uint32_t pool, use_values &values) {
        candidates_[layer_].fresh = false;  // pins may have come or gone
        const uint32_t layer = shared_ ? furthest_layer(values) : pool;
        if (layer == none_found || (!shared_ && !find_candidate(layer, values))) return -1;
        const candidate &candidate = candidates_[layer];
        return candidate.wait + position_ * static_cast<float>(steps_to(layer));
    }
    // Layer steps until the layer's next visit, 1 .. layers.
    uint32_t steps_to(uint32_t layer) const {
        return layer > layer_ ? layer - layer_ : layer + layers_ - layer_;
    }

private:
    struct candidate {
        uint32_t page;
        float wait;
        bool fresh;
    };

    float visits(float value) const { return (1 - value) / (value * (1 - discount_)); }

    void take(uint32_t layer, moorage::pages &victims) {
        const uint32_t page = candidates_[layer].page;
        candidates_[layer].fresh = false;
        taken_[page] = 1;
        named_.push_back(page);
        victims.push(page);
    }

    bool find_candidate(uint32_t layer, use_values &values) {
        candidate &candidate = candidates_[layer];
        const uint32_t first = layer * experts_;
        const float *value = values.values_of(layer);
        const uint32_t expert =
            lanes_->find_least(value, state_ + first, taken_.data() + first, experts_);
        candidate = {none_found, 0, true};
        if (expert == none_found) return false;
        candidate.page = first + expert;
        candidate.wait = visits(value[expert]);
        return true;
    }

    // The layer whose candidate is evicted first, furthest layers first.
    uint32_t furthest_layer(use_values &values) {
        uint32_t best = none_found;
        float most = -1;
        for (uint32_t steps = layers_, layer = layer_; steps > 0; --steps) {
            candidate &candidate = candidates_[layer];
            if (!candidate.fresh ||
                (candidate.page != none_found && !moorage::evictable(state_[candidate.page])))
                find_candidate(layer, values);
            if (candidate.page != none_found) {
                const float wait = candidate.wait + position_ * static_cast<float>(steps);
                if (wait > most) most = wait, best = layer;
            }
            layer = layer == 0 ? layers_ - 1 : layer - 1;
        }
        return best;
    }

    const lane_kernels *lanes_ = nullptr;
    const uint32_t *state_ = nullptr;
    uint32_t layers_ = 0, experts_ = 0, layer_ = 0;
    bool shared_ = true;
    float discount_ = 0, position_ = 0;
    std::vector<candidate> candidates_;  // [layers]
    std::vector<uint8_t> taken_;         // [pages] named in the running call
    std::vector<uint32_t> named_;        // the named pages
};

}  // namespace learning

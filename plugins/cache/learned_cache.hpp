// learned_cache.hpp - the common part of the learning caches: parameters, order, victims.
#pragma once

#include "value_order.hpp"

namespace learning {

inline constexpr moorage::param learning_rate_param =
    moorage::real("learning_rate", 3e-4, 0, 1, "step of Adam; 0: the weights stay as they begin");
inline constexpr moorage::param discount_param =
    moorage::real("discount", 0.75, 0, 0.99, "what a use one visit later is worth");
inline constexpr moorage::param position_param = moorage::real(
    "position", 3, 0, 1000, "visits that a whole round of layers until the next visit counts as");
inline constexpr moorage::param simd_param = moorage::text(
    "simd", "auto", lane_choices, "instructions to use; decisions do not depend on it");

class learned_cache {
public:
    learned_cache(const moorage::setup &setup, uint32_t extras)
        : host_(setup.host),
          lanes_(&lanes_of(setup.text("simd"))),
          options_{static_cast<float>(setup.real("discount")),
                   static_cast<float>(setup.real("learning_rate")), extras},
          position_(static_cast<float>(setup.real("position"))) {}

    void on_load(uint32_t page, uint32_t, int32_t) { order_.mark_changed(page); }
    void on_evict(uint32_t page, int32_t) { order_.mark_changed(page); }
    void victims(const moorage::room &room, moorage::pages &victims) {
        order_.victims(room, victims, values_);
    }

protected:
    void activate_common(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        groups_.activate(limits);
        values_.activate(limits, *lanes_, options_);
        order_.activate(limits, state_, *lanes_, options_.discount, position_);
    }
    void reset_common() {
        values_.reset();
        order_.reset();
    }
    // The part of observe before the policy's own extras. learn() ends it.
    void begin_step(const moorage::step &step) {
        groups_.gather(step);
        values_.count(step, groups_.all());
        order_.visit(step.layer);
        bool first = true;
        for (const stream_groups::group &group : groups_.all()) {
            values_.join_request(step, group, first);
            first = false;
        }
    }

    moorage::host host_;
    const lane_kernels *lanes_;
    const use_values::options options_;
    const float position_;
    const uint32_t *state_ = nullptr;
    stream_groups groups_;
    use_values values_;
    value_order order_;
};

}  // namespace learning

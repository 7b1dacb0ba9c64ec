// tide.cpp - exchanges experts over an idle link: the most wanted for the least wanted.
//
// Dispatch policies that compute absent experts on the CPU leave the link idle. They load behind
// the CPU what was just requested, first come, first served. If a link brings five experts in the
// time of a token and seventeen are missed, that is any five. This policy keeps one order of all
// experts, absent or resident, by the wait that value_order.hpp evicts by, in visits:
//
//   wait = (1 - V) / (V (1 - discount)) + position * D / layers
//
// It exchanges: whenever the link would be idle before the next step (../prefetch/link_pace.hpp),
// it orders the absent expert with the shortest wait into the slot of the resident expert with the
// longest, if that gains `margin` visits. This is greedy exchange towards the content that a cache
// of these values would have if loads cost nothing. On a slow link it gets as far as the link does.
//
// V is echo's value of an expert (echo_values.hpp), learned when its layer was last routed. For the
// layers that a load begun now can reach in time, and `reach` layers from the first of them, the
// running token counts too. With chance P of the coming visit, by the history and for the next
// layer by the gate, the value is P + (1 - P) discount V. Layers that come up before the load would
// arrive are a round further away. The pace of the last layers tells when a layer comes up. The
// loads under way tell when a load arrives.
//
// Loads are ordered late: at most `waiting` at once, and none while loads under way keep the link
// busy until the next step, which will know more. They take slots (MOORAGE_PLACE_SLOT). A step that
// wants such an expert meanwhile may wait for it, or compute it on the CPU while the load
// continues. Demand passes these loads between pieces (transport chunked). Dispatch should load
// nothing behind by itself (overlap with behind = 0). As cache policy it is echo. With caches per
// layer the victim is of the same layer. Several GPUs count as one link.
//
// Cost: echo's, and if the link has time O(experts of all layers + reach * experts * matches).
//
// Mean over cells of time / (F* and fixed costs), on six traces and four GPUs, a quarter resident,
// first halves, 1,000 tokens. echo with overlap: 1.94. Each row changes one setting.
//
//   defaults         1.75      `reach` 2            1.76
//   `waiting` 1      1.77      `reach` 24           1.75
//   `waiting` 3      1.76      `discount` .6        1.75
//   `margin` 0.5     1.76      `discount` .9        1.75
//   `margin` 6       1.82      transport direct     1.77
//                              `dispatch.behind` 4  1.85
//
// Three other ideas changed the mean by at most .01: weights by the cost of a miss in its layer,
// long rates mixed into V, another regression for P.

#include "../prefetch/link_pace.hpp"
#include "echo_values.hpp"

namespace {

class tide : public learning::echo_values {
public:
    static constexpr moorage::about about{
        .name = "tide",
        .summary = "exchanges the least wanted for the most wanted while the link has time",
        .source = "own; values and predictions are those of echo",
    };
    static constexpr moorage::param params[] = {
        learning::history_param,
        learning::matches_param,
        learning::carry_param,
        learning::sharpness_param,
        learning::learning_rate_param,
        learning::discount_param,
        learning::position_param,
        moorage::real("margin", 3, 0, 1000,
                      "visits by which the one that goes has to be wanted later"),
        moorage::integer("waiting", 2, 1, 16, "loads that are under way or wait for the link"),
        moorage::integer("reach", 8, 1, 4096,
                         "layers that are foretold, from the first that a load can be in time for"),
        learning::simd_param,
    };

    explicit tide(const moorage::setup &setup)
        : echo_values(setup),
          margin_(static_cast<float>(setup.real("margin"))),
          waiting_(static_cast<size_t>(setup.integer("waiting"))),
          reach_(static_cast<uint32_t>(setup.integer("reach"))) {}

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        view_ = host_.residency();
        costs_ = host_.costs();
        link_.activate(waiting_, view_->host_state);
        echo_values::activate(limits);
        reset();
    }
    void reset() {
        echo_values::reset();
        link_.reset();
    }

    uint32_t horizon() { return costs_ ? 1 : 0; }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        link_.begin(host_.now_ns(), forecast.backlog_ns, forecast.window_ns);
        while (link_.idles() && !orders.full()) {
            find_wanted(step, forecast, link_.first_in_time(costs_->load_ns));
            if (wanted_ == moorage::none || !gains(wanted_ / experts_)) return;
            orders.push(wanted_, MOORAGE_WHOLE, MOORAGE_PLACE_SLOT);
            link_.order(wanted_, costs_->load_ns);
        }
    }

private:
    // Sets wanted_ and wait_: the absent page with the shortest wait that is not under way.
    // `first`: layer steps ahead that a load can reach in time.
    void find_wanted(const moorage::step &step, const moorage::forecast &forecast, uint64_t first) {
        wanted_ = moorage::none;
        for (uint32_t distance = 1; distance <= layers_; ++distance) {
            const uint32_t layer = (step.layer + distance) % layers_;
            const float *values = values_.values_of(layer);
            if (distance < first) {
                find_in(layer, values, distance + layers_);
            } else if (distance < first + reach_) {
                predict_values(forecast, layer, distance, values);
                find_in(layer, soon_.data(), distance);
            } else {
                find_in(layer, values, distance);
            }
        }
    }

    // Sets soon_: the values of a coming layer with the chances of its coming visit.
    void predict_values(const moorage::forecast &forecast, uint32_t layer, uint32_t distance,
                        const float *values) {
        compute_chances(layer, distance);
        if (distance == 1 && !forecast.experts(0).empty())
            mix_.mix(layer, forecast.experts(0), chances_.data());
        for (uint32_t expert = 0; expert < experts_; ++expert) {
            const float chance = chances_[expert];
            soon_[expert] = chance + (1 - chance) * options_.discount * values[expert];
        }
    }

    void find_in(uint32_t layer, const float *values, uint32_t steps) {
        const uint32_t base = layer * experts_;
        uint32_t best = moorage::none;
        for (uint32_t expert = 0; expert < experts_; ++expert) {
            if (state_[base + expert] != 0) continue;
            if (best != moorage::none && values[expert] <= values[best]) continue;
            if (!link_.ordered(base + expert)) best = expert;
        }
        if (best == moorage::none) return;
        const float wait = order_.wait(values[best], steps);
        if (wanted_ != moorage::none && wait >= wait_) return;
        wanted_ = base + best;
        wait_ = wait;
    }

    // Whether loading wanted_ is worth more than its victim.
    bool gains(uint32_t layer) {
        const uint32_t pool = view_->pools == 1 ? 0 : layer;
        if (view_->host_used[pool] < view_->host_slots[pool]) return true;
        return wait_ + margin_ < order_.longest_wait(pool, values_);
    }

    const float margin_;
    const size_t waiting_;
    const uint32_t reach_;
    uint32_t layers_ = 0, experts_ = 0;
    const moorage::residency *view_ = nullptr;
    const moorage::costs *costs_ = nullptr;
    link_pace link_;
    uint32_t wanted_ = moorage::none;
    float wait_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.tide", "1.0.0", tide)

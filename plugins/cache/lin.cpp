// lin.cpp - like ema, with one more input: which experts follow which in the same layer.
//
// For every expert s of a layer, the policy keeps the share of visits at which e was used after s
// was used at the visit before. It is a decayed count (rate 1 / n, at least `transition_rate`). The
// input for the next visit is the mean over the experts used now. A stream's visits follow each
// other, whatever other streams do in between. Cost: that of ema and 2 k vector sums. Memory: that
// of ema and 4 bytes a pair of experts.

#include "learned_cache.hpp"

namespace {

class lin : public learning::learned_cache {
public:
    static constexpr moorage::about about{
        .name = "lin",
        .summary = "evicts by a value learned online from use rates and transitions",
        .source = "this project's study, its lighter form",
    };
    static constexpr moorage::param params[] = {
        learning::learning_rate_param,
        learning::discount_param,
        learning::position_param,
        moorage::real("transition_rate", 0.005, 0, 1, "least rate at which transitions are learnt"),
        learning::simd_param,
    };

    explicit lin(const moorage::setup &setup)
        : learned_cache(setup, 2), least_rate_(static_cast<float>(setup.real("transition_rate"))) {}

    void activate(const moorage::limits &limits) {
        activate_common(limits);
        layers_ = limits.layers;
        experts_ = limits.experts;
        top_k_ = limits.top_k;
        padded_ = values_.padded();
        transitions_.assign(size_t{layers_} * experts_ * padded_);
        uses_.resize(size_t{layers_} * experts_);
        last_.resize(size_t{limits.requests_max} * layers_ * top_k_);
        used_.assign(padded_);
        following_.assign(padded_);
        reset();
    }
    void reset() {
        reset_common();
        transitions_.fill(values_.base_rate());
        std::fill(uses_.begin(), uses_.end(), 0);
        std::fill(last_.begin(), last_.end(), moorage::none);
    }

    void observe(const moorage::step &step) {
        begin_step(step);
        bool first = true;
        for (const learning::stream_groups::group &group : groups_.all()) {
            follow(step, group);
            values_.join_extra(1, following_.data(), following_.data(), {0, 0, 0, 1, first});
            first = false;
        }
        values_.learn();
    }

private:
    // Learns the transitions from the stream's last set to this one. Looks up what may follow this
    // one.
    void follow(const moorage::step &step, const learning::stream_groups::group &group) {
        const std::span<const uint32_t> chosen = step.chosen(group.last);
        const size_t place = (size_t{group.stream} * layers_ + step.layer) * top_k_;
        const std::span<uint32_t> last(last_.data() + place, top_k_);
        used_.fill(0);
        for (const uint32_t expert : chosen) used_[expert] = 1;
        for (const uint32_t previous : last) {
            if (previous == moorage::none) break;
            const size_t row = size_t{step.layer} * experts_ + previous;
            const float rate = std::max(least_rate_, 1 / (++uses_[row] + 1));
            lanes_->approach(transitions_.data() + row * padded_, used_.data(), rate, padded_);
        }
        following_.fill(0);
        const float share = 1 / static_cast<float>(chosen.size());
        for (uint32_t i = 0; i < top_k_; ++i) {
            last[i] = i < chosen.size() ? chosen[i] : moorage::none;
            if (i >= chosen.size()) continue;
            const size_t row = size_t{step.layer} * experts_ + chosen[i];
            lanes_->add_scaled(following_.data(), transitions_.data() + row * padded_, share,
                               padded_);
        }
    }

    const float least_rate_;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 0, padded_ = 0;
    learning::lane_array<float> transitions_;  // [layers][experts before][padded experts after]
    std::vector<float> uses_;                  // [layers][experts] visits after which the expert
                                               // was seen
    std::vector<uint32_t> last_;               // [streams][layers][top_k] set of the last visit
    learning::lane_array<float> used_, following_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.lin", "1.0.0", lin)

// echo.cpp - routing repeats: evicts, and prefetches, by what followed the most similar history.
//
// The policy learns online how soon each expert will be used again, from its rates of use and from
// what came after the tokens whose routing resembles the running one's (echo_values.hpp), and
// evicts the one with the longest wait over all layers (value_order.hpp).
//
// The same matches predict the layers to come without access to a gate. As prefetch policy (same
// instance, when both stages name it) it orders what is wanted `ahead` layers from here with a
// probability of at least `threshold`, nearest layer first, most probable first. Where the host has
// the gate's prediction for the next layer, both are mixed (gate_mix.hpp).
//
// Cost: that of echo_values.hpp, and for a prediction O(experts of a layer * matches).

#include <algorithm>

#include "echo_values.hpp"

namespace {

class echo : public learning::echo_values {
public:
    static constexpr moorage::about about{
        .name = "echo",
        .summary = "evicts and prefetches by what followed similar routing before",
        .source = "this project's study: routing history repeats",
    };
    static constexpr moorage::param params[] = {
        learning::history_param,
        learning::matches_param,
        learning::carry_param,
        learning::sharpness_param,
        learning::learning_rate_param,
        learning::discount_param,
        learning::position_param,
        moorage::integer("ahead", 1, 1, 4096, "prefetch: layers ahead that are predicted"),
        moorage::real("threshold", 0.5, 0, 1, "prefetch: least probability that is fetched"),
        moorage::flag("gate", true, "prefetch: mix in the gate's prediction where there is one"),
        learning::simd_param,
    };

    explicit echo(const moorage::setup &setup)
        : echo_values(setup),
          ahead_(static_cast<uint32_t>(setup.integer("ahead"))),
          threshold_(static_cast<float>(setup.real("threshold"))),
          gate_(setup.flag("gate")) {}

    void activate(const moorage::limits &limits) {
        echo_values::activate(limits);
        ranked_.resize(limits.experts);
        listed_ = std::min(limits.experts, std::max(4 * limits.top_k, 16u));
    }

    uint32_t horizon() { return ahead_; }

    // The next layer is left to the gate, which plan then mixes with.
    uint32_t predict(const moorage::step &step, uint32_t layer, uint32_t distance,
                     std::span<uint32_t> experts, std::span<float> scores) {
        if (gate_ && distance == 1) return 0;
        foresee(layer, distance);
        const uint32_t count =
            std::min(rank(step.experts, 0), static_cast<uint32_t>(experts.size()));
        for (uint32_t i = 0; i < count; ++i) {
            experts[i] = ranked_[i];
            scores[i] = chances_[ranked_[i]];
        }
        return count;
    }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        for (uint32_t target = 0; target < forecast.target_count; ++target) {
            const uint32_t layer = forecast.host_layers[target];
            const std::span<const uint32_t> predicted = forecast.experts(target);
            if (gate_ && target == 0) {
                foresee(layer, 1);
                if (!predicted.empty()) mix_.mix(layer, predicted, chances_.data());
                const uint32_t count = rank(step.experts, threshold_);
                for (uint32_t i = 0; i < count; ++i)
                    order(layer, ranked_[i], chances_[ranked_[i]], step, orders);
            } else {
                const std::span<const float> scores = forecast.scores(target);
                for (uint32_t i = 0; i < predicted.size() && i < scores.size(); ++i)
                    order(layer, predicted[i], scores[i], step, orders);
            }
        }
    }

private:
    // The most probable experts first, ties by number, those below `least` left out; returns how
    // many are in ranked_.
    uint32_t rank(uint32_t experts, float least) {
        uint32_t able = 0;
        for (uint32_t first = 0; first < experts; first += 16) {  // few are in most cases able
            const float *const chances = chances_.data() + first;
            uint32_t any = 0;
            for (uint32_t i = 0; i < 16; ++i) any |= chances[i] >= least;
            for (uint32_t i = 0; any && i < 16 && first + i < experts; ++i) {
                ranked_[able] = first + i;
                able += chances[i] >= least;
            }
        }
        const uint32_t count = std::min(listed_, able);
        std::partial_sort(ranked_.begin(), ranked_.begin() + count, ranked_.begin() + able,
                          [this](uint32_t a, uint32_t b) {
                              return chances_[a] != chances_[b] ? chances_[a] > chances_[b] : a < b;
                          });
        return count;
    }

    void order(uint32_t layer, uint32_t expert, float chance, const moorage::step &step,
               moorage::orders &orders) const {
        const uint32_t page = layer * step.experts + expert;
        if (chance < threshold_) return;
        const uint32_t there = state_[page] | state_[page] >> MOORAGE_STATE_IN_FLIGHT_SHIFT;
        if ((there & MOORAGE_WHOLE) == MOORAGE_WHOLE) return;
        orders.push(page);
    }

    const uint32_t ahead_;
    const float threshold_;
    const bool gate_;
    std::vector<uint32_t> ranked_;
    uint32_t listed_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.echo", "1.0.0", echo)

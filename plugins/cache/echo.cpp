// echo.cpp - routing repeats: evicts, and prefetches, by what followed the most similar history.
//
// As ema, the policy learns online how soon each expert will be used again (use_values.hpp) and
// evicts the one with the longest wait over all layers (value_order.hpp). Two inputs more come from
// the history of routing (route_history.hpp): of the last `history` tokens the `matches` that share
// most experts with the running token, over the layers it has passed and, fading, the tokens
// before, tell which experts came next after them, and how soon within the next 16 tokens.
//
// The same matches predict the layers to come without access to a gate. As prefetch policy (same
// instance, when both stages name it) it orders what is wanted `ahead` layers from here with a
// probability of at least `threshold`, nearest layer first, most probable first. Where the host has
// the gate's prediction for the next layer, both are mixed (gate_mix.hpp).
//
// Prefill tokens are remembered and counted, and teach the weights nothing. Streams of a batch or
// of interleaved requests are matched each by itself against the history of all.
// Cost: see README.md; per step and stream, history * ceil(experts / 32) / 16 vector steps of
// AVX-512, about 4 k matches. Memory: history * 4 bytes a stream, history * layers * 4 bytes per 32
// experts, and that of ema. Nothing is allocated in steps.

#include <algorithm>

#include "gate_mix.hpp"
#include "learned_cache.hpp"
#include "route_history.hpp"

namespace {

class echo : public learning::learned_cache {
public:
    static constexpr moorage::about about{
        .name = "echo",
        .summary = "evicts and prefetches by what followed similar routing before",
        .source = "this project's study: routing history repeats",
    };
    static constexpr moorage::param params[] = {
        moorage::integer("history", 4096, 16, 1 << 20, "tokens remembered"),
        moorage::integer("matches", 8, 1, learning::matches_max, "most similar tokens followed"),
        moorage::real("carry", 0.3, 0, 1, "similarity handed on from one token to the next"),
        moorage::real("sharpness", 0.07, 1e-3, 10,
                      "share of a token's experts in common that weighs a match e times as much"),
        learning::learning_rate_param,
        learning::discount_param,
        learning::position_param,
        moorage::integer("ahead", 1, 1, 4096, "prefetch: layers ahead that are predicted"),
        moorage::real("threshold", 0.5, 0, 1, "prefetch: least probability that is fetched"),
        moorage::flag("gate", true, "prefetch: mix in the gate's prediction where there is one"),
        learning::simd_param,
    };

    explicit echo(const moorage::setup &setup)
        : learned_cache(setup, 3),
          history_options_{static_cast<uint32_t>(setup.integer("history")),
                           static_cast<uint32_t>(setup.integer("matches")),
                           static_cast<float>(setup.real("carry")),
                           static_cast<float>(setup.real("sharpness"))},
          ahead_(static_cast<uint32_t>(setup.integer("ahead"))),
          threshold_(static_cast<float>(setup.real("threshold"))),
          gate_(setup.flag("gate")) {}

    void activate(const moorage::limits &limits) {
        activate_common(limits);
        history_.activate(limits, *lanes_, history_options_);
        mix_.activate(limits, *lanes_);
        const uint32_t room = learning::padded_to_lanes(limits.experts) + 32;
        for (auto *array : {&next_, &soon_, &chances_}) array->assign(room);
        ranked_.resize(limits.experts);
        listed_ = std::min(limits.experts, std::max(4 * limits.top_k, 16u));
        reset();
    }
    void reset() {
        reset_common();
        history_.reset();
        mix_.reset();
    }

    void observe(const moorage::step &step) {
        begin_step(step);
        mix_.settle(step.layer, values_.used());
        history_.record(step);
        bool first = true;
        for (const learning::stream_groups::group &group : groups_.all()) {
            history_.match(step, group);
            join_matches(step.layer, group.stream, first);
            first = false;
        }
        values_.learn();
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
    static constexpr float prior = 0.3f;

    void join_matches(uint32_t layer, uint32_t stream, bool first) {
        next_.fill(0);
        soon_.fill(0);
        history_.follow(stream, next_.data(), soon_.data());
        const float *rate = values_.rate_of(layer, 2);
        const float inverse = 1 / (history_.matches(stream).total + prior);
        const float share = 1 / static_cast<float>(values_.streams());
        values_.join_extra(1, next_.data(), rate, {prior, share, 1, inverse, first});
        values_.join_extra(2, soon_.data(), rate, {prior, 4 * share, 0.9f, inverse, first});
    }

    // chances_: that any of the step's streams uses the expert `distance` layer steps from here.
    void foresee(uint32_t layer, uint32_t distance) {
        const float *rate = values_.rate_of(layer, 2);
        const float share = 1 / static_cast<float>(std::max(1u, values_.streams()));
        bool first = true;
        for (const learning::stream_groups::group &group : groups_.all()) {
            next_.fill(0);
            const float known = history_.ahead(group.stream, distance, next_.data());
            lanes_->join(chances_.data(), next_.data(), rate,
                         {prior, share, 1, 1 / (known + prior), first}, values_.padded());
            first = false;
        }
    }

    // The most probable experts first, ties by number, those below `least` left out; returns how
    // many are in ranked_.
    uint32_t rank(uint32_t experts, float least) {
        uint32_t able = 0;
        for (uint32_t expert = 0; expert < experts; ++expert) {
            ranked_[able] = expert;
            able += chances_[expert] >= least;
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

    const learning::route_history::options history_options_;
    const uint32_t ahead_;
    const float threshold_;
    const bool gate_;
    learning::route_history history_;
    learning::gate_mix mix_;
    learning::lane_array<float> next_, soon_, chances_;  // [padded experts]
    std::vector<uint32_t> ranked_;
    uint32_t listed_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.echo", "1.0.0", echo)

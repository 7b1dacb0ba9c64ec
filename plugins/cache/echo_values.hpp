// echo_values.hpp - use values from similar routing history: the common part of echo and tide.
//
// Like ema, it learns online how soon each expert will be used again (use_values.hpp). Two more
// inputs come from the history of routing (route_history.hpp). Among the last `history` tokens it
// takes the `matches` that share most experts with the running token, over the layers that the
// token has passed and, fading, over the tokens before. They tell which experts came next after
// them, and how soon within the next 16 tokens. The same matches predict the requests of the coming
// layers.
//
// Prefill tokens are remembered and counted, but do not teach the weights. Each stream of a batch
// or of interleaved requests is matched by itself against the history of all.
// Cost: see echo.cpp; per step and stream, history * ceil(experts / 32) / 16 vector steps of
// AVX-512, about 4 k matches. Memory: history * 4 bytes a stream, history * layers * 4 bytes per 32
// experts, and that of ema. Nothing is allocated in steps.
#pragma once

#include <algorithm>

#include "gate_mix.hpp"
#include "learned_cache.hpp"
#include "route_history.hpp"

namespace learning {

inline constexpr moorage::param history_param =
    moorage::integer("history", 4096, 16, 1 << 20, "tokens remembered");
inline constexpr moorage::param matches_param =
    moorage::integer("matches", 8, 1, matches_max, "most similar tokens followed");
inline constexpr moorage::param carry_param =
    moorage::real("carry", 0.3, 0, 1, "similarity handed on from one token to the next");
inline constexpr moorage::param sharpness_param =
    moorage::real("sharpness", 0.07, 1e-3, 10,
                  "share of a token's experts in common that weighs a match e times as much");

class echo_values : public learned_cache {
public:
    explicit echo_values(const moorage::setup &setup)
        : learned_cache(setup, 3),
          history_options_{static_cast<uint32_t>(setup.integer("history")),
                           static_cast<uint32_t>(setup.integer("matches")),
                           static_cast<float>(setup.real("carry")),
                           static_cast<float>(setup.real("sharpness"))} {}

    void activate(const moorage::limits &limits) {
        activate_common(limits);
        history_.activate(limits, *lanes_, history_options_);
        mix_.activate(limits, *lanes_);
        const uint32_t room = padded_to_lanes(limits.experts) + 32;
        for (auto *array : {&next_, &soon_, &chances_}) array->assign(room);
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
        for (const stream_groups::group &group : groups_.all()) {
            history_.match(step, group);
            join_matches(step.layer, group.stream, first);
            first = false;
        }
        values_.learn();
    }

protected:
    // Sets chances_: the chance that any of the step's streams uses the expert `distance` layer
    // steps from here.
    void compute_chances(uint32_t layer, uint32_t distance) {
        const float *rate = values_.rate_of(layer, 2);
        const float share = 1 / static_cast<float>(std::max(1u, values_.streams()));
        bool first = true;
        for (const stream_groups::group &group : groups_.all()) {
            next_.fill(0);
            const float known = history_.add_uses_ahead(group.stream, distance, next_.data());
            lanes_->join(chances_.data(), next_.data(), rate,
                         {prior, share, 1, 1 / (known + prior), first}, values_.padded());
            first = false;
        }
    }

    route_history history_;
    gate_mix mix_;
    lane_array<float> next_, soon_, chances_;  // [padded experts]

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

    const route_history::options history_options_;
};

}  // namespace learning

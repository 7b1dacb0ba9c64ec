// layer_step.cpp - fills and groups the arrays of a step.
#include "core/source/layer_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moorage::core {

layer_step::layer_step(const source &from, uint32_t needs)
    : has_weights_((from.offers() & MOORAGE_NEEDS_WEIGHTS) != 0),
      wants_weights_(has_weights_ && (needs & MOORAGE_NEEDS_WEIGHTS)),
      wants_scores_((from.offers() & MOORAGE_NEEDS_GATE_SCORES) &&
                    (needs & MOORAGE_NEEDS_GATE_SCORES)) {
    const size_t tokens = from.tokens_max(), k = from.top_k(), experts = from.experts();
    const size_t distinct = std::min(tokens * k, experts);
    routed.resize(tokens * k);
    routed_weights.resize(tokens * k);
    routed_classes.resize(tokens * k);
    rule_weights_.resize(tokens * k);
    chosen_.resize(tokens * k);
    adopted_chosen_.resize(tokens * k);
    classes_.resize(tokens * k);
    distinct_.resize(distinct);
    distinct_tokens_.resize(distinct);
    streams_.resize(tokens);
    requests_.resize(tokens);
    if (wants_weights_)
        for (auto *array : {&weights_, &adopted_weights_}) array->resize(tokens * k);
    if (wants_scores_) gate_scores_.resize(tokens * experts);
    if (wants_weights_ || wants_scores_) distinct_scores_.resize(distinct);
    stamp_.resize(experts, 0);
    item_.resize(experts, 0);
    view_->size = sizeof(moorage_step);
    view_->top_k = from.top_k();
    view_->experts = from.experts();
    view_->host_streams = core::lent(streams_);
    view_->host_requests = core::lent(requests_);
    lent_.chosen = core::lent(chosen_);
    lent_.adopted_chosen = core::lent(adopted_chosen_);
    lent_.distinct = core::lent(distinct_);
    lent_.distinct_tokens = core::lent(distinct_tokens_);
    lent_.weights = core::lent(weights_);
    lent_.adopted_weights = core::lent(adopted_weights_);
    lent_.gate_scores = core::lent(gate_scores_);
    lent_.distinct_scores = core::lent(distinct_scores_);
    lent_.classes = core::lent(classes_);
}

void layer_step::fill(source &from, const pass &tokens, uint32_t layer) {
    adopted_ = false;
    view_->layer = layer;
    view_->phase = tokens.phase;
    view_->token_count = static_cast<uint32_t>(tokens.tokens.size());
    for (size_t i = 0; i < tokens.tokens.size(); ++i) {
        streams_[i] = tokens.tokens[i].stream;
        requests_[i] = tokens.tokens[i].request;
    }
    from.route(tokens, layer, chosen_.data());
    if (wants_weights_) from.weights(tokens, layer, weights_.data());
    if (wants_scores_) from.gate_scores(tokens, layer, gate_scores_.data());
    view_->host_chosen = lent_.chosen;
    view_->host_weights = lent_.weights;  // null where there are none
    view_->host_gate_scores = lent_.gate_scores;
    view_->host_classes = nullptr;
    view_->host_distinct = nullptr;
    view_->host_distinct_tokens = nullptr;
    view_->host_distinct_scores = nullptr;
    view_->distinct_count = 0;
}

void layer_step::weigh_route(source &from, const pass &tokens) {
    const size_t count = chosen().size();
    gives_weights_ = !std::all_of(routed_weights.begin(), routed_weights.begin() + count,
                                  [](float weight) { return std::isnan(weight); });
    if (!gives_weights_) return;
    std::fill_n(rule_weights_.begin(), count, std::numeric_limits<float>::quiet_NaN());
    if (has_weights_) from.weigh(tokens, view_->layer, routed.data(), rule_weights_.data());
}

// Weights that agree to a ten-thousandth of the row's largest differ by rounding. Where the source
// knows none (NaN), no weight is the model's.
layer_step::changes layer_step::changed(uint32_t row) const {
    const size_t k = view_->top_k;
    const uint32_t *own = chosen_.data() + row * k, *now = routed.data() + row * k;
    const float *given = routed_weights.data() + row * k, *rule = rule_weights_.data() + row * k;
    changes found;
    float largest = 0;
    if (gives_weights_)
        for (size_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(rule[i]));
    for (size_t i = 0; i < k; ++i) {
        if (std::find(own, own + k, now[i]) == own + k) {
            ++found.substituted;
        } else if (gives_weights_ && !std::isnan(given[i]) &&
                   !(std::abs(given[i] - rule[i]) <= 1e-4f * largest)) {
            ++(given[i] == 0 ? found.dropped : found.reweighted);
        }
    }
    return found;
}

// No memcmp: behind `routed` lies a page without rights, and reading up to it with a masked vector,
// as the C library does, takes the processor hundreds of cycles.
bool layer_step::repeats_own() const {
    const uint32_t *const now = routed.data(), *const own = chosen_.data();
    uint32_t differing = 0;
    for (size_t i = 0, count = chosen().size(); i < count; ++i) differing |= now[i] ^ own[i];
    return differing == 0;
}

void layer_step::restore_row(uint32_t row) {
    const size_t k = view_->top_k, at = row * k;
    std::copy_n(chosen_.data() + at, k, routed.data() + at);
    std::fill_n(routed_weights.data() + at, k, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(routed_classes.data() + at, k, uint8_t{MOORAGE_CLASS_TOP});
}

void layer_step::adopt_route() {
    const size_t count = chosen().size();
    std::copy_n(routed.data(), count, adopted_chosen_.data());
    std::copy_n(routed_classes.data(), count, classes_.data());
    view_->host_chosen = lent_.adopted_chosen;
    view_->host_classes = lent_.classes;
    adopted_ = true;
}

void layer_step::weigh(source &from, const pass &tokens) {
    if (!wants_weights_ || !adopted_) return;
    std::copy_n(routed_weights.data(), chosen().size(), adopted_weights_.data());
    from.weigh(tokens, view_->layer, adopted_chosen_.data(), adopted_weights_.data());
    view_->host_weights = lent_.adopted_weights;
}

void layer_step::predicted(const lent_vector<uint32_t> &experts) {
    view_->host_predicted = core::lent(experts);
    view_->prediction_count = static_cast<uint32_t>(experts.size());
}

void layer_step::group() {
    const uint32_t now = ++stamp_now_;
    const size_t k = view_->top_k, count = view_->token_count * k;
    const bool scored = !distinct_scores_.empty();
    const uint32_t *const experts = adopted_ ? adopted_chosen_.data() : chosen_.data();
    uint32_t distinct = 0;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t expert = experts[i];
        if (stamp_[expert] != now) {
            stamp_[expert] = now;
            item_[expert] = distinct;
            distinct_[distinct] = expert;
            distinct_tokens_[distinct] = 0;
            if (scored) distinct_scores_[distinct] = 0;
            ++distinct;
        }
        const uint32_t item = item_[expert];
        ++distinct_tokens_[item];
        if (scored) {
            const float score =
                wants_scores_ ? gate_scores_[i / k * view_->experts + expert] : weights_[i];
            distinct_scores_[item] = std::max(distinct_scores_[item], score);
        }
    }
    view_->distinct_count = distinct;
    view_->host_distinct = lent_.distinct;
    view_->host_distinct_tokens = lent_.distinct_tokens;
    view_->host_distinct_scores = lent_.distinct_scores;  // null where there are none
}

void layer_step::advance(uint64_t tokens_done) {
    ++view_->index;
    ++view_->visit;
    view_->token = tokens_done;
}

}  // namespace moorage::core

// layer_step.cpp - fills and groups the arrays of a step.
#include "core/source/layer_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/few.h"

namespace moorage::core {

layer_step::layer_step(const source &source, uint32_t needs, bool hidden, uint32_t versions)
    : has_weights_((source.offers() & MOORAGE_NEEDS_WEIGHTS) != 0),
      wants_weights_(has_weights_ && (needs & MOORAGE_NEEDS_WEIGHTS)),
      wants_scores_((source.offers() & MOORAGE_NEEDS_GATE_SCORES) &&
                    (needs & MOORAGE_NEEDS_GATE_SCORES)),
      wants_hidden_(hidden && source.hidden_size() != 0),
      several_versions_(versions > 1) {
    const size_t tokens = source.tokens_max(), k = source.top_k(), experts = source.experts();
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
    positions_.resize(tokens);
    token_ids_.resize(tokens);
    kept_.resize(tokens * k);
    wanted_.resize(distinct);
    if (wants_hidden_) hidden_.resize(tokens * source.hidden_size());
    requests_.resize(tokens);
    if (wants_weights_)
        for (auto *array : {&weights_, &adopted_weights_}) array->resize(tokens * k);
    if (wants_scores_) gate_scores_.resize(tokens * experts);
    if (wants_weights_ || wants_scores_) distinct_scores_.resize(distinct);
    stamp_.resize(experts, 0);
    item_.resize(experts, 0);
    view_->size = sizeof(moorage_step);
    view_->top_k = source.top_k();
    view_->experts = source.experts();
    view_->host_streams = core::lent(streams_);
    view_->host_requests = core::lent(requests_);
    view_->host_positions = core::lent(positions_);
    view_->host_token_ids = source.has_token_ids() ? core::lent(token_ids_) : nullptr;
    lent_.view = view_.lent();
    lent_.chosen = core::lent(chosen_);
    lent_.adopted_chosen = core::lent(adopted_chosen_);
    lent_.distinct = core::lent(distinct_);
    lent_.distinct_tokens = core::lent(distinct_tokens_);
    lent_.weights = core::lent(weights_);
    lent_.adopted_weights = core::lent(adopted_weights_);
    lent_.gate_scores = core::lent(gate_scores_);
    lent_.distinct_scores = core::lent(distinct_scores_);
    lent_.classes = core::lent(classes_);
    lent_.hidden = core::lent(hidden_);
}

void layer_step::begin_pass(const pass &pass) {
    view_->phase = pass.phase;
    view_->token_count = static_cast<uint32_t>(pass.tokens.size());
    for (size_t i = 0; i < pass.tokens.size(); ++i) {
        const pass_token &token = pass.tokens[i];
        streams_[i] = token.stream;
        requests_[i] = token.request;
        positions_[i] = token.position;
        token_ids_[i] = token.token_id;
    }
}

void layer_step::fill(source &source, const pass &pass, uint32_t layer) {
    adopted_ = drops_ = small_ = false;
    computed_ = chosen_.data();
    view_->layer = layer;
    source.route(pass, layer, chosen_.data());
    if (wants_weights_) source.weights(pass, layer, weights_.data());
    if (wants_scores_) source.gate_scores(pass, layer, gate_scores_.data());
    if (wants_hidden_) {
        const std::span<const float> seen = source.hidden();
        std::copy(seen.begin(), seen.end(), hidden_.begin());
        view_->host_hidden = seen.empty() ? nullptr : lent_.hidden;
        view_->hidden_size = seen.empty() ? 0 : source.hidden_size();
    }
    view_->host_chosen = lent_.chosen;
    view_->host_weights = lent_.weights;  // null if there are none
    view_->host_gate_scores = lent_.gate_scores;
    view_->host_classes = nullptr;
    view_->host_distinct = nullptr;
    view_->host_distinct_tokens = nullptr;
    view_->host_distinct_scores = nullptr;
    view_->distinct_count = 0;
}

void layer_step::weigh_route(source &source, const pass &pass) {
    const size_t count = chosen().size();
    gives_weights_ = !std::all_of(routed_weights.begin(), routed_weights.begin() + count,
                                  [](float weight) { return std::isnan(weight); });
    if (!gives_weights_) return;
    std::fill_n(rule_weights_.begin(), count, std::numeric_limits<float>::quiet_NaN());
    if (has_weights_) source.weigh(pass, view_->layer, routed.data(), rule_weights_.data());
}

// Weights that differ by at most 1e-4 of the row's largest weight differ only by rounding. If the
// source has no weights (NaN), every weight counts as different.
layer_step::changes layer_step::count_changes(uint32_t row) const {
    const size_t k = view_->top_k;
    const uint32_t *model_choice = chosen_.data() + row * k, *route = routed.data() + row * k;
    const float *weights = routed_weights.data() + row * k, *rule = rule_weights_.data() + row * k;
    changes found;
    float largest = 0;
    if (gives_weights_)
        for (size_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(rule[i]));
    const uint8_t *classes = routed_classes.data() + row * k;
    for (size_t i = 0; i < k; ++i) {
        if (classes[i] == MOORAGE_CLASS_DROPPED) {
            ++found.dropped;
        } else if (std::find(model_choice, model_choice + k, route[i]) == model_choice + k) {
            ++found.substituted;
        } else if (classes[i] == MOORAGE_CLASS_SMALL && several_versions_) {
            ++found.small;
        } else if (gives_weights_ && !std::isnan(weights[i]) &&
                   !(std::abs(weights[i] - rule[i]) <= 1e-4f * largest)) {
            ++(weights[i] == 0 ? found.dropped : found.reweighted);
        }
    }
    return found;
}

// Does not use memcmp. The page behind `routed` has no access rights, and the C library reads up to
// it with a masked vector, which costs hundreds of cycles.
bool layer_step::repeats_own() {
    const uint32_t *const route = routed.data(), *const model_choice = chosen_.data();
    const uint8_t *const classes = routed_classes.data();
    const float *const weights = routed_weights.data();
    uint32_t differing = 0;
    bool has_weights = false;
    for (size_t i = 0, count = chosen().size(); i < count; ++i) {
        differing |= (route[i] ^ model_choice[i]) | (classes[i] >= MOORAGE_CLASS_DROPPED);
        has_weights |= !std::isnan(weights[i]);
        prevent_vectorising();
    }
    gives_weights_ = has_weights;
    return differing == 0;
}

void layer_step::clear_route() {
    const size_t count = chosen().size();
    fill_few(routed_weights.data(), count, std::numeric_limits<float>::quiet_NaN());
    fill_few(routed_classes.data(), count, uint8_t{MOORAGE_CLASS_TOP});
}

void layer_step::restore_row(uint32_t row) {
    const size_t k = view_->top_k, first = row * k;
    std::copy_n(chosen_.data() + first, k, routed.data() + first);
    std::fill_n(routed_weights.data() + first, k, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(routed_classes.data() + first, k, uint8_t{MOORAGE_CLASS_TOP});
}

bool layer_step::has_class(uint8_t which) const {
    const uint8_t *const end = classes_.data() + chosen().size();
    return std::find(classes_.data(), end, which) != end;
}

void layer_step::adopt_route(bool departs, bool renormalise) {
    const size_t count = chosen().size();
    copy_few(routed.data(), count, adopted_chosen_.data());
    copy_few(routed_classes.data(), count, classes_.data());
    view_->host_chosen = lent_.adopted_chosen;
    view_->host_classes = lent_.classes;
    adopted_ = true;
    computed_ = adopted_chosen_.data();
    small_ = departs && several_versions_ && has_class(MOORAGE_CLASS_SMALL);
    drops_ = departs && has_class(MOORAGE_CLASS_DROPPED);
    if (!drops_) return;
    renormalises_ = renormalise;
    for (size_t i = 0; i < count; ++i)
        kept_[i] = classes_[i] == MOORAGE_CLASS_DROPPED ? MOORAGE_NONE : adopted_chosen_[i];
    computed_ = kept_.data();
}

// In a row that lost experts, the others keep their weights or take over the lost weight.
void layer_step::zero_dropped() {
    const size_t k = view_->top_k;
    for (size_t first = 0; first < chosen().size(); first += k) {
        float *const of_row = adopted_weights_.data() + first;
        float total = 0, kept = 0;
        for (size_t i = 0; i < k; ++i) {
            total += of_row[i];
            if (computed_[first + i] == MOORAGE_NONE) of_row[i] = 0;
            kept += of_row[i];
        }
        if (!renormalises_ || kept == 0 || kept == total) continue;
        for (size_t i = 0; i < k; ++i) of_row[i] *= total / kept;
    }
}

void layer_step::weigh(source &source, const pass &pass) {
    if (!wants_weights_ || !adopted_) return;
    copy_few(routed_weights.data(), chosen().size(), adopted_weights_.data());
    source.weigh(pass, view_->layer, adopted_chosen_.data(), adopted_weights_.data());
    if (drops_) zero_dropped();
    view_->host_weights = lent_.adopted_weights;
}

void layer_step::predicted(const lent_vector<uint32_t> &experts) {
    view_->host_predicted = core::lent(experts);
    view_->prediction_count = static_cast<uint32_t>(experts.size());
}

void layer_step::group() {
    drops_ ? group_all<true>() : group_all<false>();
    if (small_) want_versions();
}

// An expert may use the second version if that is good enough for every token that chose it.
void layer_step::want_versions() {
    std::fill_n(wanted_.begin(), view_->distinct_count, uint8_t{1});
    for (size_t i = 0, count = chosen().size(); i < count; ++i)
        if (computed_[i] != MOORAGE_NONE && classes_[i] != MOORAGE_CLASS_SMALL)
            wanted_[item_[computed_[i]]] = 0;
}

template <bool Drops>
void layer_step::group_all() {
    const uint32_t now = ++stamp_now_;
    const size_t k = view_->top_k, count = view_->token_count * k;
    const bool scored = !distinct_scores_.empty();
    const uint32_t *const experts = computed_;
    uint32_t distinct = 0;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t expert = experts[i];
        if (Drops && expert == MOORAGE_NONE) continue;
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
    view_->host_distinct_scores = lent_.distinct_scores;  // null if there are none
}

void layer_step::advance(uint64_t tokens_done) {
    ++view_->index;
    ++view_->visit;
    view_->token = tokens_done;
}

}  // namespace moorage::core

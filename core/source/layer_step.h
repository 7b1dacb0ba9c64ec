// layer_step.h - the data of one layer step: who asked, what the router chose, grouped by expert.
//
// All arrays are sized once, for the largest pass. Policies see lent(), in memory that they cannot
// write; what a router writes is taken over from arrays of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/host/fenced_memory.h"
#include "core/host/lent_memory.h"
#include "core/source/source.h"
#include "moorage/step.h"

namespace moorage::core {

class layer_step {
public:
    // `hidden`: policies look at hidden states. `versions`: of each expert, 1 or 2.
    layer_step(const source &from, uint32_t needs, bool hidden = false, uint32_t versions = 1);

    // The tokens of the steps to come.
    void enter(const pass &tokens);
    // Reads the model's own choice for `layer` (and weights and scores, where a policy needs them).
    void fill(source &from, const pass &tokens, uint32_t layer);
    // Takes over a router's choice. `departs`: perhaps some are dropped, or small; `renormalise` as
    // in moorage_route.
    void adopt_route(bool departs, bool renormalise);
    // What became of the model's own choice in token `row`'s route. Before adopt_route().
    struct changes {
        uint32_t substituted = 0;  // experts that the model would not have chosen
        // Its own with another weight than its rule gives them; with none left, or of that class.
        uint32_t reweighted = 0, dropped = 0;
        uint32_t small = 0;  // its own in the second version, where there is one
        uint32_t all() const { return substituted + reweighted + dropped + small; }
    };
    changes changed(uint32_t row) const;
    bool gives_weights() const { return gives_weights_; }  // the router does
    bool knows_weights() const { return has_weights_; }
    // Reads what the model's own rule gives the routed experts, for changed(), where the router
    // gives weights at all. Requires: they are experts of the layer. Before adopt_route().
    void weigh_route(source &from, const pass &tokens);
    // An empty route, for a router to write.
    void clear_route();
    // Whether the route of all tokens is the model's own, expert by expert, with none dropped and
    // none small. From then on gives_weights() says whether it comes with weights.
    bool repeats_own();
    // The model's own choice and weights for token `row`, in place of the route.
    void restore_row(uint32_t row);
    // Completes the weights of a router's choice; nothing to do where the model's own stands.
    void weigh(source &from, const pass &tokens);
    // [B, k] of what is computed; weights empty where the source has none.
    std::span<const uint32_t> chosen() const {
        return {view_->host_chosen, size_t{view_->token_count} * view_->top_k};
    }
    std::span<const float> weights() const {
        return {view_->host_weights, view_->host_weights ? chosen().size() : 0};
    }
    // The same as chosen() with MOORAGE_NONE for what was dropped.
    std::span<const uint32_t> computed() const { return {computed_, chosen().size()}; }
    // Groups the chosen experts: distinct ones in order of first appearance.
    void group();
    // The next step of the run.
    void advance(uint64_t tokens_done);
    void tokens_done(uint64_t count) { view_->token = count; }
    // What was predicted for the layer; borrowed until the next fill().
    void predicted(const lent_vector<uint32_t> &experts);

    const moorage_step &view() const { return *view_; }
    const moorage_step *lent() const { return lent_.view; }
    const uint32_t *distinct() const { return distinct_.data(); }
    uint32_t distinct_count() const { return view_->distinct_count; }
    // The best version that any token asks for of the distinct expert in place `item`. Requires:
    // group() was called.
    uint8_t version_wanted(uint32_t item) const { return small_ ? wanted_[item] : uint8_t{0}; }
    const uint32_t *distinct_tokens() const { return distinct_tokens_.data(); }
    // Position of `expert` among the distinct ones, or MOORAGE_NONE.
    uint32_t item_of(uint32_t expert) const {
        return stamp_[expert] == stamp_now_ ? item_[expert] : MOORAGE_NONE;
    }

    // Where a router writes.
    fenced_vector<uint32_t> routed;
    fenced_vector<float> routed_weights;
    fenced_vector<uint8_t> routed_classes;

private:
    template <bool Drops>
    void group_all();
    void zero_dropped();
    bool has_class(uint8_t which) const;
    void want_versions();

    lent_record<moorage_step> view_;
    // The policies' side of what the view shows only in some steps, or at times: arrays never move.
    struct {
        const moorage_step *view;
        const uint32_t *chosen, *adopted_chosen, *distinct, *distinct_tokens;
        const float *weights, *adopted_weights, *gate_scores, *distinct_scores;
        const uint8_t *classes;
        const int32_t *token_ids;
        const float *hidden;
    } lent_;
    bool has_weights_, wants_weights_, wants_scores_, wants_hidden_, adopted_ = false;
    const bool several_versions_;
    bool drops_ = false, renormalises_ = false, small_ = false;  // the adopted route
    lent_vector<uint32_t> chosen_, adopted_chosen_, distinct_, distinct_tokens_, streams_,
        positions_;
    lent_vector<int32_t> token_ids_;
    lent_vector<uint64_t> requests_;
    lent_vector<float> weights_, adopted_weights_, gate_scores_, distinct_scores_, hidden_;
    lent_vector<uint8_t> classes_;
    std::vector<uint32_t> kept_;   // of a route that drops: computed()
    std::vector<uint8_t> wanted_;  // of a route with small ones: [distinct] versions
    const uint32_t *computed_ = nullptr;
    std::vector<float> rule_weights_;  // [tokens * k] of the route, by the model's own rule
    bool gives_weights_ = false;       // then they stand there
    std::vector<uint32_t> stamp_, item_;
    uint32_t stamp_now_ = 0;
};

}  // namespace moorage::core

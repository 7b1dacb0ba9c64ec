// layer_step.h - the data of one layer step: its tokens, the router's choice, grouped by expert.
//
// All arrays get their size once, for the largest pass. Policies see lent() copies in memory that
// they cannot write. Routers write to separate arrays, which are copied.
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
    // `hidden`: policies use hidden states. `versions`: of each expert, 1 or 2.
    layer_step(const source &source, uint32_t needs, bool hidden = false, uint32_t versions = 1);

    // Sets the tokens of the next steps.
    void begin_pass(const pass &pass);
    // Reads the model's own choice for `layer`. Also reads weights and scores if a policy needs
    // them.
    void fill(source &source, const pass &pass, uint32_t layer);
    // Adopts a router's choice. `departs`: the choice is not the model's own, so its experts may
    // have the class DROPPED or SMALL (moorage/step.h). `renormalise`: as in moorage_route.
    void adopt_route(bool departs, bool renormalise);
    // How the route of token `row` differs from the model's own choice. Call it before
    // adopt_route().
    struct changes {
        uint32_t substituted = 0;  // experts that the model would not have chosen
        // reweighted: own experts with another weight than the model's rule gives. dropped: experts
        // of class MOORAGE_CLASS_DROPPED, or own ones with weight 0.
        uint32_t reweighted = 0, dropped = 0;
        uint32_t small = 0;  // own experts in the second version
        uint32_t total() const { return substituted + reweighted + dropped + small; }
    };
    changes count_changes(uint32_t row) const;
    bool gives_weights() const { return gives_weights_; }  // whether the router gives weights
    bool knows_weights() const { return has_weights_; }
    // Reads the weights that the model's rule gives to the routed experts, for count_changes().
    // Only needed if the router gives weights. Requires: they are experts of the layer. Call it
    // before adopt_route().
    void weigh_route(source &source, const pass &pass);
    // Sets up an empty route for a router to write.
    void clear_route();
    // Is the route of every token exactly the model's own, with no expert dropped or small? From
    // then on gives_weights() says whether it has weights.
    bool repeats_own();
    // Replaces the route of token `row` by the model's own choice and weights.
    void restore_row(uint32_t row);
    // Completes the weights of a router's choice. Does nothing for the model's own choice.
    void weigh(source &source, const pass &pass);
    // [B, k] the computed choice. Weights are empty if the source has none.
    std::span<const uint32_t> chosen() const {
        return {view_->host_chosen, size_t{view_->token_count} * view_->top_k};
    }
    std::span<const float> weights() const {
        return {view_->host_weights, view_->host_weights ? chosen().size() : 0};
    }
    // Like chosen(), but with MOORAGE_NONE for dropped experts.
    std::span<const uint32_t> computed() const { return {computed_, chosen().size()}; }
    // Groups the chosen experts: the distinct ones in order of first appearance.
    void group();
    // Goes on to the next step of the run.
    void advance(uint64_t tokens_done);
    void tokens_done(uint64_t count) { view_->token = count; }
    // Sets the experts that were predicted for the layer. Borrowed until the next fill().
    void predicted(const lent_vector<uint32_t> &experts);

    const moorage_step &view() const { return *view_; }
    const moorage_step *lent() const { return lent_.view; }
    const uint32_t *distinct() const { return distinct_.data(); }
    uint32_t distinct_count() const { return view_->distinct_count; }
    // The best version of distinct expert number `index` that any token asks for. Requires: group()
    // was called.
    uint8_t version_wanted(uint32_t index) const { return small_ ? wanted_[index] : uint8_t{0}; }
    const uint32_t *distinct_tokens() const { return distinct_tokens_.data(); }
    // The index of `expert` among the distinct ones, or MOORAGE_NONE.
    uint32_t item_of(uint32_t expert) const {
        return stamp_[expert] == stamp_now_ ? item_[expert] : MOORAGE_NONE;
    }

    // Routers write here.
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
    // The policies' addresses of arrays that the view shows only in some steps. The arrays never
    // move.
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
    bool drops_ = false, renormalises_ = false, small_ = false;  // of the adopted route
    lent_vector<uint32_t> chosen_, adopted_chosen_, distinct_, distinct_tokens_, streams_,
        positions_;
    lent_vector<int32_t> token_ids_;
    lent_vector<uint64_t> requests_;
    lent_vector<float> weights_, adopted_weights_, gate_scores_, distinct_scores_, hidden_;
    lent_vector<uint8_t> classes_;
    std::vector<uint32_t> kept_;   // computed() of a route that drops experts
    std::vector<uint8_t> wanted_;  // [distinct] versions, for a route with small experts
    const uint32_t *computed_ = nullptr;
    std::vector<float> rule_weights_;  // [tokens * k] of the route, by the model's own rule
    bool gives_weights_ = false;       // then rule_weights_ is filled
    std::vector<uint32_t> stamp_, item_;
    uint32_t stamp_now_ = 0;
};

}  // namespace moorage::core

// model_source.h - requests to a model as a source: prompts to continue, texts to score.
//
// `batch` requests are active at a time; a stream takes the next request when its own ends. A
// prompt enters in prefill passes of at most `prefill` tokens, or token by token (0). Then every
// pass adds one token. The tokens of a pass depend on the logits of the previous pass, so the
// source reads them from the executor's pass_results at the beginning of next().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/model/routing.h"
#include "core/source/pass_results.h"
#include "core/source/sampler.h"
#include "core/source/source.h"

namespace moorage::core {

struct model_request {
    std::vector<int32_t> ids;  // the prompt or the text to score, at least one
    uint32_t new_tokens = 0;   // at most; 0: the text is scored
    uint32_t score_from = 0;   // from this id on
};

struct model_source_options {
    uint32_t batch = 1;
    uint32_t prefill = 512;  // tokens of a prefill pass; 0: token by token
    uint64_t tokens = 0;     // limit of all computed tokens; 0: none
    sampling sampling_options = {};
    std::vector<int32_t> end_ids = {};  // these end a continuation
    // Does the request's text end with this token? Called after on_token.
    std::function<bool(uint64_t request, int32_t id)> ends_text = {};
    bool predict = false;        // compute next-layer predictions
    bool score_written = false;  // score the continuation, too
    // Called with every new token of a request, in order.
    std::function<void(uint64_t request, int32_t id)> on_token = {};
    // Provides requests while others are running. Called whenever a stream is free; false: none
    // now. Then the source has no end and forgets finished requests. Empty: the given ones are all.
    std::function<bool(model_request &request)> take_request = {};
    uint32_t context_max = 0;                           // with take_request: positions of the
                                                        // longest request
    std::function<void(uint64_t request)> on_end = {};  // no further token of the request follows
};

// The tokens of a text that have one before them, and the sum of their -log p.
struct score {
    uint64_t tokens = 0;
    double nll_sum = 0;
};

class model_source final : public source {
public:
    // `model` is borrowed. Requires: at least one request, or take_request; no empty request.
    model_source(const model &model, std::vector<model_request> requests,
                 const model_source_options &options);
    // Sets where the executor's results are read. Call it before the first next().
    void connect(const pass_results &results) { results_ = &results; }

    uint32_t layers() const override { return static_cast<uint32_t>(moe_layers_.size()); }
    uint32_t experts() const override { return config_.experts; }
    uint32_t top_k() const override { return config_.top_k; }
    uint32_t tokens_max() const override;
    uint32_t streams() const override { return options_.batch; }
    uint32_t predictions_max() const override { return options_.predict ? predictions_ : 0; }
    uint32_t offers() const override;
    bool has_token_ids() const override { return true; }
    uint32_t hidden_size() const override { return config_.hidden; }
    std::span<const float> hidden() const override { return results_->router_input(); }
    bool idle() override;
    bool predict_from(uint32_t) override { return options_.predict; }
    bool scored_predictions() const override { return true; }
    bool next(pass &pass) override;
    uint64_t wakes_ns() const override { return options_.take_request ? 0 : MOORAGE_NEVER; }
    void route(const pass &pass, uint32_t layer, uint32_t *chosen) override;
    void weights(const pass &pass, uint32_t layer, float *weights) override;
    void gate_scores(const pass &pass, uint32_t layer, float *scores) override;
    void weigh(const pass &pass, uint32_t layer, const uint32_t *chosen, float *weights) override;
    uint32_t predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) override;

    uint32_t context_max() const;              // positions of the longest request
    uint32_t outputs_max() const;              // tokens with logits in a pass
    uint64_t tokens() const { return rows_; }  // handed out so far
    bool scores_texts() const {
        return !options_.take_request && requests_.front().new_tokens == 0;
    }
    // Ends the request before the next pass, because its remaining tokens are not needed.
    void give_up(uint64_t request) { given_up_.push_back(request); }
    const std::vector<model_request> &requests() const { return requests_; }
    // The tokens written for each request so far, without end tokens, and the score of each. With
    // take_request: only of requests that are not forgotten.
    const std::vector<std::vector<int32_t>> &written() const { return written_; }
    const std::vector<score> &scores() const { return scores_; }
    // Where a computed value was not finite and, if known, why. Empty: all were finite. The pass
    // that failed goes on with invented routing, so that policies never see such values. It is the
    // last pass.
    const std::string &failure() const { return failure_; }

private:
    struct stream {
        bool live = false;
        uint64_t request = 0;
        uint32_t position = 0;  // next to compute
        uint32_t computed = 0;  // positions computed, with the rotations of `scaling` or earlier
                                // ones
        uint64_t scaling = 0;   // rope_scaling_of() its text
        random_stream draws{0, 0};
    };
    const model_request &request_of(uint64_t request) const {
        return requests_[request - first_request_];
    }
    // Length of the text up to the token at `position`. Prompts and texts to score count as a
    // whole.
    uint64_t length_of(const stream &stream, uint32_t position) const;
    void end(stream &stream);
    void forget();
    void take_results();
    void take_logits(stream &stream, const pass_token &token, std::span<const float> logits);
    void refill();
    bool prefill_pass(pass &pass);
    void decode_pass(pass &pass);
    uint64_t tokens_left() const;  // up to the limit
    void add_token(pass &pass, stream &stream, uint32_t index, bool decoding);
    std::span<const float> logits_of(size_t index) const;
    bool check_logits(std::span<const float> logits, const char *of_what, const pass_token &token,
                      uint32_t layer);

    const model &model_;
    const model_config &config_;
    std::vector<uint32_t> moe_layers_;
    routing_rule rule_;
    model_source_options options_;
    std::vector<model_request> requests_;
    const pass_results *results_ = nullptr;
    sampler sampler_;
    uint32_t predictions_ = 0;

    std::vector<stream> streams_;
    uint64_t first_request_ = 0;  // number of requests_[0]
    uint64_t next_request_ = 0, rows_ = 0;
    std::vector<uint64_t> given_up_;
    pass last_;  // the pass whose results were not read yet
    uint64_t first_row_ = 0;
    std::vector<std::vector<int32_t>> written_;
    std::vector<score> scores_;
    std::vector<float> weights_;  // [B, k] of the latest routed layer
    std::vector<float> row_scores_;
    std::vector<uint32_t> ranked_;
    std::string failure_;
};

}  // namespace moorage::core

// trace_source.h - a trace as a source: requests in order, `batch` of them active at a time.
//
// A stream takes the next request when its own ends. With `prefill` > 0, the first tokens of a
// request are one pass before its decoding begins. A shorter request prefills all tokens but the
// last.
#pragma once

#include "core/source/source.h"
#include "core/source/trace.h"

namespace moorage::core {

struct trace_source_options {
    uint32_t batch = 1;
    uint32_t prefill = 0;  // tokens
    uint64_t tokens = 0;   // limit, from the start of the trace; 0: all
    // For executors that compute. Ids are those of the trace, or made up below `vocabulary` (0:
    // none). Positions start again at 0 after `context_max`.
    uint32_t vocabulary = 0, context_max = UINT32_MAX;
};

class trace_source final : public source {
public:
    // `trace` is borrowed. Requires: batch >= 1.
    trace_source(const trace &trace, const trace_source_options &options);

    uint32_t layers() const override { return trace_.layers(); }
    uint32_t experts() const override { return trace_.experts(); }
    uint32_t top_k() const override { return trace_.top_k(); }
    uint32_t tokens_max() const override;
    uint32_t streams() const override { return options_.batch; }
    uint32_t predictions_max() const override { return trace_.predictions(); }
    uint32_t offers() const override;
    bool has_token_ids() const override { return trace_.has_token_ids(); }
    bool idle() override;
    bool scored_predictions() const override { return trace_.has_prediction_scores(); }
    bool next(pass &pass) override;
    void route(const pass &pass, uint32_t layer, uint32_t *chosen) override;
    void weights(const pass &pass, uint32_t layer, float *weights) override;
    void gate_scores(const pass &pass, uint32_t layer, float *scores) override;
    void weigh(const pass &pass, uint32_t layer, const uint32_t *chosen, float *weights) override;
    uint32_t predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) override;

private:
    struct stream {
        bool live = false;
        bool prefilled = false;
        uint64_t request = 0, begin = 0, row = 0, end = 0;
    };
    void refill();
    void release_passed();
    pass_token token_at(const stream &stream, uint32_t index) const;
    bool prefill_pass(pass &pass);

    const trace &trace_;
    trace_source_options options_;
    uint64_t token_limit_ = 0, next_request_ = 0;
    uint64_t released_ = 0;  // rows before this one have left memory
    std::vector<stream> streams_;
};

}  // namespace moorage::core

// source.h - the input of a run: passes of tokens, their routing, and predictions of it.
//
// A pass takes tokens through all layers. A decode pass has one token of every active request. A
// prefill pass has the first tokens of one request. Sources are traces (trace_source.h) and models
// (model_source.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "moorage/prefetch.h"
#include "moorage/step.h"

namespace moorage::core {

struct pass_token {
    uint64_t row = 0;                   // its row in the source
    uint64_t next_row = MOORAGE_NEVER;  // row of the same request's next token, if that will be
                                        // decoded
    uint64_t request = 0;
    uint32_t stream = 0;      // below the batch size
    uint32_t position = 0;    // in its request
    uint32_t length = 0;      // of its text, if more of it is known
    bool recomputed = false;  // was computed before, in a shorter text
    bool first = false;       // its pass gives the request's first output token
    bool last = false;        // last token of its request
    int32_t token_id = -1;    // in a model's vocabulary; -1: the source has none
    bool output = false;      // the model's logits are needed
    bool silent = false;      // decoded without an output token, because it is part of the prompt
    uint64_t arrived_ns = MOORAGE_NEVER;  // when its request arrived; MOORAGE_NEVER: not known

    // Length of the sequence, which decides its rotations (rope.h).
    uint64_t sequence_length() const { return std::max<uint64_t>(length, uint64_t{position} + 1); }
};

struct pass {
    int32_t phase = MOORAGE_DECODE;
    std::vector<pass_token> tokens;

    // Sum of the cached tokens that each token attends to, including itself.
    uint64_t context() const {
        uint64_t sum = 0;
        for (const pass_token &token : tokens) sum += token.position + 1;
        return sum;
    }
    // Number of separate caches: the tokens of a prompt share one.
    uint64_t sequences() const { return phase == MOORAGE_PREFILL ? 1 : tokens.size(); }
};

class source {
public:
    virtual ~source() = default;

    virtual uint32_t layers() const = 0;
    virtual uint32_t experts() const = 0;
    virtual uint32_t top_k() const = 0;
    virtual uint32_t tokens_max() const = 0;       // in one pass
    virtual uint32_t streams() const = 0;          // requests active at a time
    virtual uint32_t predictions_max() const = 0;  // per layer and token; 0: no predictions
    virtual uint32_t offers() const = 0;           // MOORAGE_NEEDS_* that it can serve
    // Do token ids belong to the texts of the routing?
    virtual bool has_token_ids() const { return false; }
    virtual uint32_t hidden_size() const { return 0; }  // of hidden()
    // [B, hidden_size] the router's input in the current layer; empty: not known here.
    virtual std::span<const float> hidden() const { return {}; }

    // Is no request active? Then the next pass begins one, or nothing is left.
    virtual bool idle() = 0;
    // Asks for predictions made from MOORAGE_FROM_*. True: the executor of the passes must make
    // them. False: they were recorded, or there are none. [control]
    virtual bool predict_from(uint32_t) { return false; }
    // Do predictions have gate scores, not only an order?
    virtual bool scored_predictions() const = 0;
    // Fills the next pass. False: at the end, or until wakes_ns().
    virtual bool next(pass &pass) = 0;
    // When next() will have a pass after it returned false; MOORAGE_NEVER: never.
    virtual uint64_t wakes_ns() const { return MOORAGE_NEVER; }
    // Called when a pass has been through all layers, so its output tokens are known.
    virtual void pass_done(const pass &, uint64_t /*now_ns*/) {}
    // The model's own choice for every token of the pass: `chosen` [B, k], best first.
    virtual void route(const pass &pass, uint32_t layer, uint32_t *chosen) = 0;
    // Outputs [B, k] and [B, E]. Requires: offers() has them.
    virtual void weights(const pass &pass, uint32_t layer, float *weights) = 0;
    virtual void gate_scores(const pass &pass, uint32_t layer, float *scores) = 0;
    // Fills in weights [B, k] of a router's choice that are NaN, by the model's own rule. Without a
    // model: the weight that the source has for the expert, otherwise 0.
    virtual void weigh(const pass &pass, uint32_t layer, const uint32_t *chosen,
                       float *weights) = 0;
    // The experts that were predicted for `layer` at row `row` before its router ran, best first.
    // Returns how many, at most predictions_max. If the source has no scores, `scores` gets 1 -
    // rank / count.
    virtual uint32_t predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) = 0;
};

// Sees every layer step when its experts are known, before they are computed. It may ask the source
// for data of the step, including predictions of the next layer.
class step_watcher {
public:
    virtual ~step_watcher() = default;
    virtual void step(const moorage_step &view, const pass &pass, source &source) = 0;
};

}  // namespace moorage::core

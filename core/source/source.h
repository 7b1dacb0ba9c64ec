// source.h - what a run is fed with: passes of tokens, their routing, and predictions of it.
//
// A pass takes one or more tokens through all layers: a decode pass one token of every live
// request, a prefill pass the first tokens of one request. Sources: a trace (trace_source.h), later
// a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "moorage/prefetch.h"
#include "moorage/step.h"

namespace moorage::core {

struct pass_token {
    uint64_t row = 0;                   // in the source
    uint64_t next_row = MOORAGE_NEVER;  // of the same request's next token, if it will be decoded
    uint64_t request = 0;
    uint32_t stream = 0;    // below the batch size
    uint32_t position = 0;  // in its request
    uint32_t length = 0;    // of the text that it is computed in, where more of it is known
    bool again = false;     // it was computed before, in a shorter text
    bool first = false;     // its pass yields the request's first output token
    bool last = false;      // of its request
    int32_t token_id = -1;  // of a model's vocabulary; -1: the source has none
    bool output = false;    // the model's logits are wanted
    bool silent = false;    // decoded without an output token: it belongs to the prompt
    uint64_t arrived_ns = MOORAGE_NEVER;  // when its request came; MOORAGE_NEVER: not known

    // Tokens of the sequence whose rotations it has (rope.h).
    uint64_t sequence_length() const { return std::max<uint64_t>(length, uint64_t{position} + 1); }
};

struct pass {
    int32_t phase = MOORAGE_DECODE;
    std::vector<pass_token> tokens;

    // Cached tokens that all of them look back on, their own included.
    uint64_t context() const {
        uint64_t sum = 0;
        for (const pass_token &token : tokens) sum += token.position + 1;
        return sum;
    }
    // That look back on caches of their own: the tokens of a prompt share one.
    uint64_t sequences() const { return phase == MOORAGE_PREFILL ? 1 : tokens.size(); }
};

class source {
public:
    virtual ~source() = default;

    virtual uint32_t layers() const = 0;
    virtual uint32_t experts() const = 0;
    virtual uint32_t top_k() const = 0;
    virtual uint32_t tokens_max() const = 0;       // of one pass
    virtual uint32_t streams() const = 0;          // live requests at one time
    virtual uint32_t predictions_max() const = 0;  // per layer and token; 0 without
    virtual uint32_t offers() const = 0;           // MOORAGE_NEEDS_* it can serve
    // Whether token ids are those of the texts that the routing is of.
    virtual bool has_token_ids() const { return false; }
    virtual uint32_t hidden_size() const { return 0; }  // of what hidden() may show
    // [B, hidden_size] what the router of the layer at hand saw; empty: nobody here knows.
    virtual std::span<const float> hidden() const { return {}; }

    // Whether no request is under way: the next pass begins one, or nothing is left.
    virtual bool idle() = 0;
    // Asks for predictions made from MOORAGE_FROM_*; whether that is up to what computes the
    // passes. False: they were recorded, or there are none. [control]
    virtual bool predict_from(uint32_t) { return false; }
    // Whether predictions come with gate scores, not with an order alone.
    virtual bool scored_predictions() const = 0;
    // Fills the next pass; false at the end, or until wakes_ns().
    virtual bool next(pass &out) = 0;
    // When next() will have a pass although it returned false now; MOORAGE_NEVER: never again.
    virtual uint64_t wakes_ns() const { return MOORAGE_NEVER; }
    // A pass that it filled has been through all layers: its output tokens are there.
    virtual void pass_done(const pass &, uint64_t /*now_ns*/) {}
    // The model's own choice for every token of the pass: `chosen` [B, k], best first.
    virtual void route(const pass &of, uint32_t layer, uint32_t *chosen) = 0;
    // [B, k] and [B, E]. Requires: offers() has them.
    virtual void weights(const pass &of, uint32_t layer, float *out) = 0;
    virtual void gate_scores(const pass &of, uint32_t layer, float *out) = 0;
    // Weights of a router's choice [B, k], where they are NaN, by the model's own rule. Without a
    // model: what the source knows of an expert's weight, else 0.
    virtual void weigh(const pass &of, uint32_t layer, const uint32_t *chosen, float *out) = 0;
    // Experts predicted for `layer` at row `row` before its router ran, best first; returns how
    // many (at most predictions_max). `scores` gets 1 - rank / count where the source has no
    // scores.
    virtual uint32_t predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) = 0;
};

// Sees every layer step once its experts are known, before they are computed; may ask the source
// for what it knows of the step, predictions of the next layer included.
class step_watcher {
public:
    virtual ~step_watcher() = default;
    virtual void step(const moorage_step &view, const pass &tokens, source &from) = 0;
};

}  // namespace moorage::core

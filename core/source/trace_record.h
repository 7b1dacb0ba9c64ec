// trace_record.h - writes down a run's routing as a trace: what `moorage trace record` makes.
//
//   trace_recorder record(layers, experts, top_k, predictions);
//   run(config, shared, {.watcher = &record});
//   write_trace(record.finish(), "my.safetensors");
//
// Tokens are put in the order of requests, whatever batches they came in. Predictions of layer l
// are those made one layer before; of the first layer, those made at the last layer of the token
// before (a request's first token has none: experts 0, 1, ... with score 0). What is computed again
// (pass_token::again) is in the trace once, as it was first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/source/source.h"
#include "core/source/trace_write.h"

namespace moorage::core {

class trace_recorder final : public step_watcher {
public:
    // `predictions`: how many of each, 0 for none.
    trace_recorder(uint32_t layers, uint32_t experts, uint32_t top_k, uint32_t predictions);

    void step(const moorage_step &view, const pass &tokens, source &from) override;
    // The trace; metadata is the caller's to add. Requires: at least one pass was seen.
    trace_data finish() const;
    uint64_t tokens() const { return count_; }

private:
    struct token_record {
        uint64_t request;
        uint32_t position;
        int32_t id;
        bool again;
    };
    uint64_t cell(uint64_t token, uint32_t layer) const { return token * layers_ + layer; }
    void predict(const pass &tokens, uint32_t layer, source &from);

    uint32_t layers_, experts_, top_k_, predictions_;
    uint64_t first_ = 0;  // token of the pass under way
    uint64_t count_ = 0;  // tokens but those computed again
    std::vector<token_record> tokens_;
    // In the order of passes: [token, layer, ...]; next_*: for the first layer of the token after.
    std::vector<uint16_t> chosen_, predicted_, next_predicted_;
    std::vector<float> weights_, gate_scores_, prediction_scores_, next_scores_;
    std::vector<uint32_t> one_experts_;
    std::vector<float> one_scores_, pass_scores_;
};

}  // namespace moorage::core

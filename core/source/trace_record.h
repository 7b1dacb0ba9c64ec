// trace_record.h - records a run's routing as a trace, for `moorage trace record`.
//
//   trace_recorder record(layers, experts, top_k, predictions);
//   run(config, shared, {.watcher = &record});
//   write_trace(record.finish(), "my.safetensors");
//
// Tokens are sorted by request, whatever their batches were. Predictions of layer l are those made
// one layer before. For the first layer they are those made at the last layer of the previous
// token. A request's first token has none: experts 0, 1, ... with score 0. Tokens that are computed
// again (pass_token::again) appear once, as they were at first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/source/source.h"
#include "core/source/trace_write.h"

namespace moorage::core {

class trace_recorder final : public step_watcher {
public:
    // `predictions`: how many per token and layer; 0: none.
    trace_recorder(uint32_t layers, uint32_t experts, uint32_t top_k, uint32_t predictions);

    void step(const moorage_step &view, const pass &pass, source &source) override;
    // The trace. The caller adds metadata. Requires: at least one pass was seen.
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
    void predict(const pass &pass, uint32_t layer, source &source);

    uint32_t layers_, experts_, top_k_, predictions_;
    uint64_t first_ = 0;  // first token of the current pass
    uint64_t count_ = 0;  // tokens, without those computed again
    std::vector<token_record> tokens_;
    // In the order of passes: [token, layer, ...]. next_*: for the first layer of the next token.
    std::vector<uint16_t> chosen_, predicted_, next_predicted_;
    std::vector<float> weights_, gate_scores_, prediction_scores_, next_scores_;
    std::vector<uint32_t> token_experts_;
    std::vector<float> token_scores_, pass_scores_;
};

}  // namespace moorage::core

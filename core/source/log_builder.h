// log_builder.h - collects the rows of a routing log into a trace and checks each against the
// others.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/source/trace_write.h"

namespace moorage::core {

// One row of a log: one token and layer.
struct log_row {
    std::string request;            // "" if the log has no requests
    std::optional<uint64_t> token;  // its number in the log
    uint64_t layer = 0;             // its number in the log; MoE layers need not begin at 0
    std::vector<uint64_t> experts;
    std::vector<double> weights;  // empty or as many as experts
    std::optional<int64_t> token_id;
};

// A range of layer numbers; `last` is excluded.
struct layer_range {
    uint64_t first = 0, last = UINT64_MAX;
};

class log_builder {
public:
    // `kept`: the layers whose rows are used; empty: all. `experts`: of a layer; 0: one more than
    // the largest id.
    explicit log_builder(bool half, std::vector<layer_range> kept = {}, uint32_t experts = 0)
        : kept_(std::move(kept)), experts_(experts) {
        trace_.weights.half = half;
    }

    // Are the rows of this layer used?
    bool keeps(uint64_t layer) const;

    // Errors name the column and the value, not the line. `new_token`: the row begins a token even
    // if its numbers do not show it.
    status add(const log_row &row, bool new_token);
    // Requires: no add failed.
    result<trace_data> finish();

private:
    status begin_token(const log_row &row);
    status end_token();
    status check_row(const log_row &row);
    void store(const log_row &row);

    std::vector<layer_range> kept_;
    const uint32_t experts_;
    trace_data trace_;
    std::vector<uint64_t> layers_;  // layer numbers, from the first token
    std::set<std::string> requests_seen_;
    std::string request_;
    std::optional<uint64_t> token_;
    bool has_weights_ = false, has_token_ids_ = false;
    uint64_t layers_done_ = 0;  // of the current token
    uint64_t expert_largest_ = 0;
    std::vector<size_t> order_;
};

}  // namespace moorage::core

// trace_write.h - a routing trace in memory, and its writer (contract: format "moorage.trace" v1).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/source/trace.h"

namespace moorage::core {

struct score_values {
    std::vector<float> values;  // empty: the trace has no such tensor
    bool half = true;           // stored as f16, rounded to nearest; otherwise f32
};

struct trace_data {
    uint64_t tokens = 0;
    uint32_t layers = 0, experts = 0, top_k = 0;
    uint32_t predictions = 0;         // M, 0: no predictions
    std::vector<uint16_t> chosen;     // [tokens, layers, top_k]; stored as u8 for up to 256 experts
    std::vector<uint16_t> predicted;  // [tokens, layers, predictions]
    score_values weights;             // [tokens, layers, top_k]
    score_values gate_scores;         // [tokens, layers, experts]
    score_values prediction_scores;   // [tokens, layers, predictions]
    std::vector<int32_t> token_ids;   // [tokens] or empty
    std::vector<uint64_t> request_offsets;  // [requests + 1]
    std::vector<int32_t> request_domain;    // [requests] or empty
    // The writer adds format, version, layers, experts and top_k.
    std::map<std::string, std::string> metadata;
};

// Requires: sizes as stated. Replaces the file at `path` as a whole, or leaves it unchanged. Equal
// data gives equal bytes.
status write_trace(const trace_data &data, const std::filesystem::path &path);

// Tokens [first, first + count) of `trace` with all optional tensors. Requests at both ends are
// cut. Requires: count > 0 and within the trace.
trace_data cut_trace(const trace &trace, uint64_t first, uint64_t count);
// Removes an optional tensor by its name in the file. The error lists the tensors that can be
// removed.
status drop_tensor(trace_data &data, const std::string &name);

}  // namespace moorage::core

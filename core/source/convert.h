// convert.h - reads routing logs of other programs (CSV, JSON lines) into a trace.
//
// A log has one row for each token and layer, or one JSON object for each token. Tokens are in
// order, one request after the other. Every token has the same layers in the same ascending order
// and the same number of experts. Rows are read one by one. Every error names file, line, column
// and value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/source/log_builder.h"
#include "core/source/trace_write.h"

namespace moorage::core {

struct convert_options {
    std::string format;    // "csv", "jsonl", or "": by the ending of the file's name
    uint32_t experts = 0;  // experts per layer; 0: one more than the largest id
    bool half = true;      // weights as f16, otherwise f32
    std::vector<layer_range> layers = {};  // layers of the log to keep; empty: all
};

// The first line of a CSV names its columns: token, layer, and expert0, expert1, ... or a single
// column experts with ids separated by spaces, semicolons or bars. Optional columns are weight0,
// weight1, ... or weights, request and token_id. Keys of a JSON object are layer, experts (list of
// ids) and weights. Or experts is a list for each layer, and so is weights. Optional keys are
// token, request and token_id. Other columns and keys are ignored. If there are weights, experts
// are sorted by descending weight.
result<trace_data> convert_log(const std::filesystem::path &path, const convert_options &options);
// The same from a stream. `name` is its name in errors. Requires: options.format is set.
result<trace_data> convert_stream(std::istream &input, const std::string &name,
                                  const convert_options &options);

}  // namespace moorage::core

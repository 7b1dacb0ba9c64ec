// convert.h - routing logs of other programs (CSV, JSON lines) read into a trace.
//
// A log has one row for each token and layer, or one JSON object for each token. Tokens come in
// order, request after request; every token has the same layers in the same rising order and the
// same number of experts. Rows are read one by one; every error names file, line, column and value.
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
    std::string format;    // "csv", "jsonl", or "" for what the file's name ends with
    uint32_t experts = 0;  // experts of a layer; 0: one more than the largest id
    bool half = true;      // weights as f16, else f32
    std::vector<layer_range> layers = {};  // of the log, that are kept; none: all
};

// Columns of a CSV, by the names in its first line: token, layer, and expert0, expert1, ... or one
// column experts with ids separated by spaces, semicolons or bars; optional weight0, weight1, ...
// or weights, request and token_id. Keys of a JSON object: layer, experts (list of ids), weights;
// or experts (a list for each layer), weights alike; optional token, request and token_id. Other
// columns and keys are passed over. Where there are weights, experts are put in falling order of
// them.
result<trace_data> convert_log(const std::filesystem::path &path, const convert_options &options);
// The same from a stream; `name` is what errors call it. Requires: options.format is set.
result<trace_data> convert_stream(std::istream &from, const std::string &name,
                                  const convert_options &options);

}  // namespace moorage::core

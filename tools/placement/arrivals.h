// arrivals.h - requests of a workload from a CSV file: when they arrive, and their lengths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

struct arrival {
    double at_s = 0;
    uint32_t input_tokens = 0, output_tokens = 0;
};

// Completes lengths that are 0 from a trace's request of `rows` tokens. If both are 0, all tokens
// but the last are input; input is at least one token. The last output goes through no layer, so
// input + output - 1 tokens pass through the layers. Without a trace, rows is 0.
void complete_lengths(uint32_t rows, arrival &request);
// The passes of a request: one for each `tokens_per_pass` tokens of input, and one for each output
// but the first.
inline constexpr uint32_t input_tokens_per_pass = 512;
uint64_t passes_of(const arrival &request, uint32_t tokens_per_pass = input_tokens_per_pass);

// Lines "arrival_s,input,output", ascending in time. A first line of names is skipped.
result<std::vector<arrival>> parse_arrivals(std::string_view text, std::string_view name);
result<std::vector<arrival>> read_arrivals(const std::filesystem::path &file);

}  // namespace moorage::core

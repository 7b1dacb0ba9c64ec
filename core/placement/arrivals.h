// arrivals.h - requests of a workload as a CSV file gives them: when, and how long.
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

// Lengths that are 0 become what a trace's request of `rows` tokens has besides: all of it is
// input but the last token where both are, and input is at least one token. The last output goes
// through no layer, so input + output - 1 tokens do. Without a trace, rows is 0.
void complete_lengths(uint32_t rows, arrival &of);
// Passes of a request: its input, `together` tokens at once, and each output but the first.
inline constexpr uint32_t input_together = 512;
uint64_t passes_of(const arrival &of, uint32_t together = input_together);

// Lines "arrival_s,input,output" in order of time; a first line of names is skipped.
result<std::vector<arrival>> parse_arrivals(std::string_view text, std::string_view name);
result<std::vector<arrival>> read_arrivals(const std::filesystem::path &file);

}  // namespace moorage::core

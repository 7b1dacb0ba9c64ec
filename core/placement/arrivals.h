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

// Lines "arrival_s,input,output" in order of time; a first line of names is skipped.
result<std::vector<arrival>> parse_arrivals(std::string_view text, std::string_view name);
result<std::vector<arrival>> read_arrivals(const std::filesystem::path &file);

}  // namespace moorage::core

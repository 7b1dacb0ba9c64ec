// stop_reader.h - reads [source] stop: where a continuation ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/section.h"

namespace moorage::core {

// Where a continuation ends, besides its longest length.
struct stop_config {
    bool at_model_ends = true;       // at the model's own end tokens
    std::vector<std::string> texts;  // before these; or at the token that is called so
    std::vector<int32_t> ids;        // at these tokens
};

// Takes true, false, a text, a token id, or a list of them. Not given: `out` stays.
void read_stop(section_reader &source, stop_config &out);

}  // namespace moorage::core

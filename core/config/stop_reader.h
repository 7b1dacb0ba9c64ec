// stop_reader.h - reads [source] stop: where a continuation ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/section.h"

namespace moorage::core {

// The ends of a continuation, besides its maximum length.
struct stop_config {
    bool at_model_ends = true;       // at the model's own end tokens
    std::vector<std::string> texts;  // ends before these texts, or at the token of this name
    std::vector<int32_t> ids;        // at these tokens
};

// Accepts true, false, a text, a token id, or a list of texts and ids. If the key is absent,
// `target` stays.
void read_stop(section_reader &source, stop_config &target);

}  // namespace moorage::core

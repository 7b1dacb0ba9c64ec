// failed_rows.h - rows that did not come to their end, beside those that did: as text, JSON, HTML.
#pragma once

#include <span>
#include <string>

#include "core/base/json_fwd.h"

namespace moorage::core {

struct failed_row {
    std::string label;   // tells it from the others: "cache.plugin=mine, memory.experts=4"
    std::string why;     // one line: the error, or who died, where, of what
    json_box death;      // policy, library, kind, call, layer, token, signal ...; null: an error
    bool usage = false;  // the error is one in what was asked
};

// "FAILED  label: why", a paragraph each; "" where there are none.
std::string failed_text(std::span<const failed_row> rows, size_t columns);
// [{"row", "error", and of a death its facts}]
json failed_json(std::span<const failed_row> rows);
// A table; "" where there are none.

}  // namespace moorage::core

// failed_rows.h - rows that failed, beside those that ended: as text, JSON, HTML.
#pragma once

#include <span>
#include <string>

#include "core/base/json_fwd.h"

namespace moorage::core {

struct failed_row {
    std::string label;   // tells the row from others: "cache.plugin=mine, memory.experts=4"
    std::string reason;  // one line: the error, or what died, where, and why
    json_box death;      // policy, library, kind, call, layer, token, signal ...; null: an error
    bool usage = false;  // the error is in the user's request
};

// "FAILED  label: why", a paragraph each; "" where there are none.
std::string failed_text(std::span<const failed_row> rows, size_t columns);
// [{"row", "error", and of a death its facts}]
json failed_json(std::span<const failed_row> rows);
// A table; "" where there are none.

}  // namespace moorage::core

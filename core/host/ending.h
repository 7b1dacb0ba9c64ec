// ending.h - reads how a child ended from its board and its exit status, and what of it is written.
#pragma once

#include <string_view>

#include "core/base/json_fwd.h"
#include "core/host/supervise.h"

namespace moorage::core {

// `state` as waitpid gives it; `said`: what the child wrote, where that was kept.
ending read_ending(const call_board &page, int state, std::string_view said);
// Of a work whose step did not end: who kept it, from the board's `current` as it was seen.
void blame(ending &how, const call_board &page, uint64_t current);
// {"error": text, "policy", "library", "kind", "call", "layer", "token", "signal", "exit_code",
// "overran", "note", "file"}: null where there is none.
json to_json(const ending &how);

}  // namespace moorage::core

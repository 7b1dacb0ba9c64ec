// ending.h - reads how a child ended from its board and its exit status, and writes that as JSON.
#pragma once

#include <string_view>

#include "core/base/json_fwd.h"
#include "core/host/supervise.h"

namespace moorage::core {

// `state`: from waitpid. `said`: what the child printed, if that was kept.
ending read_ending(const call_board &page, int state, std::string_view said);
// For a work whose step did not end: names the policy that kept it, from the board's `current`.
void blame(ending &outcome, const call_board &page, uint64_t current);
// Lists the policies that are not bundled if the culprit is unknown. That is so if no policy was at
// work, or if a bundled one was while the process was stopped or got a signal that no call raises.
// If there are none, the signal came from outside.
// `is_asked`: this process was asked to end and passed the signal on.
void note_suspects(ending &outcome, const call_board &page, bool is_asked);
// The loaded policies that are not bundled: "policy mine (./mine.so) and policy b (./b.so)"; "".
std::string loaded_policies(const call_board &page);
// {"error": text, "policy", "library", "kind", "call", "layer", "token", "signal", "exit_code",
// "overran", "note", "file"}; null where there is no value.
json to_json(const ending &outcome);

}  // namespace moorage::core

// child.h - runs one test in a process of its own and tells how that process ended.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/host/call.h"
#include "tools/moorage/check/check.h"

namespace moorage::check {

// Forks. The child runs `work` and sends its verdict back. A signal, an exit or a lost child is
// `crashed`. A child that outlives the timeout is killed and `failed`. Requires: one thread.
verdict run_in_child(const std::function<verdict()> &work, double timeout_s);

// The name of a call in messages: "victims", "plan (budget)".
std::string call_text(std::string_view kind, std::string_view call);
inline std::string call_text(core::entry_point call) {
    return call_text(core::kind_of(call), core::name_of(call));
}

// Ends the child at once with this verdict. Safe in a signal handler.
[[noreturn]] void end_child(outcome result, const char *text);

}  // namespace moorage::check

// child.h - runs one test in a process of its own and tells how that process ended.
#pragma once

#include <functional>
#include <string>

#include "tools/moorage/check/check.h"

namespace moorage::check {

// Forks; the child runs `work` and hands its verdict back. A signal, an exit or a lost child is
// `crashed`; a child that outlives the time-out is killed and `failed`. Requires: one thread.
verdict run_in_child(const std::function<verdict()> &work, double timeout_s);

// Names the call into the policy that is about to be made, for the message should it not return.
// `what` is a literal. [step] safe
void enter_call(const char *what);
void leave_call();

// Ends the child at once with this verdict; async-signal-safe apart from a policy's own locks.
[[noreturn]] void end_child(outcome result, const char *text);

}  // namespace moorage::check

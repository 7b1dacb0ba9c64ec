// parent_watch.h - continues a supervisor that somebody stopped (SIGSTOP), so that it still sees
// signals and deaths.
#pragma once

namespace moorage::core {

// Starts a thread of this process that looks at its parent. A parent that is stopped while this
// process runs is continued, and a warning names the policies that may have stopped it: ctrl-Z
// stops both. Without a thread to be had, nothing is watched.
void begin_parent_watch();
// Ends that thread, if there is one. Call it before a fork and at the end of the work.
void end_parent_watch();

}  // namespace moorage::core

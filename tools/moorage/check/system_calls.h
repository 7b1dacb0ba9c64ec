// system_calls.h - ends the child when it makes a system call that could block.
#pragma once

namespace moorage::check {

// From now on, every system call of this process except memory and exit ends the child with
// `failed` and the call's name. Cannot be undone. False if the kernel does not allow it.
bool forbid_blocking_calls();

}  // namespace moorage::check

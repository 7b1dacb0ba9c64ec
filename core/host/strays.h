// strays.h - processes that policies start: they come to whoever supervises, and end with the work.
#pragma once

#include <sys/types.h>

#include <vector>

namespace moorage::core {

// Children of children that die become this process's own.
void adopt_strays();

// The children of this process's first thread, as far as the kernel tells.
std::vector<pid_t> children_of_process();

// Ends all children, and theirs, but these; whether there were any.
bool end_strays(const std::vector<pid_t> &kept);

}  // namespace moorage::core

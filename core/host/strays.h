// strays.h - processes that policies start. The supervisor adopts them and ends them with the work.
#pragma once

#include <sys/types.h>

#include <vector>

namespace moorage::core {

// Makes orphans among this process's descendants its own children.
void adopt_strays();

// The children of this process's first thread, if the kernel tells.
std::vector<pid_t> children_of_process();

// Ends all children except `kept`, and their descendants. True: there were any.
bool end_strays(const std::vector<pid_t> &kept);

}  // namespace moorage::core

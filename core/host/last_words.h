// last_words.h - what a process that dies can still say: it writes on the board, then dies as it
// would have.
#pragma once

namespace moorage::core {

// Installs the handlers of what the processor raises (SIGSEGV, ...) and of std::terminate, on a
// stack of their own. The only handlers of SIGSEGV and SIGBUS in the program; what a sanitizer
// installed before is called after them.
void install_last_words();

}  // namespace moorage::core

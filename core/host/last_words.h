// last_words.h - what a dying process can still report: it writes on the board, then dies as usual.
#pragma once

namespace moorage::core {

// Installs handlers, on their own stack, for processor faults (SIGSEGV, ...) and for
// std::terminate. No other code of the program handles SIGSEGV and SIGBUS. A sanitizer's earlier
// handlers are called after these.
void install_last_words();

}  // namespace moorage::core

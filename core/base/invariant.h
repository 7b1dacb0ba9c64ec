// invariant.h - assertions that stay on in every build: what a layer step relies on.
//
// assert() is for everything else. A build type decides about it, in all libraries alike, so an
// inline function has one body.
#pragma once

namespace moorage::core {

// Prints the condition with its place, and ends the process (SIGABRT).
[[noreturn]] void invariant_broken(const char *condition, const char *file, int line);

}  // namespace moorage::core

// MOORAGE_INVARIANT(a == b && "why it holds");
#define MOORAGE_INVARIANT(condition)    \
    ((condition) ? static_cast<void>(0) \
                 : ::moorage::core::invariant_broken(#condition, __FILE__, __LINE__))

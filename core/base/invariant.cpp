// invariant.cpp - the end of a process whose own rules do not hold.
#undef NDEBUG
#include <cassert>

#include "core/base/invariant.h"

namespace moorage::core {

// As assert() ends it.
void invariant_broken(const char *condition, const char *file, int line) {
    __assert_fail(condition, file, static_cast<unsigned>(line), "moorage");
}

}  // namespace moorage::core

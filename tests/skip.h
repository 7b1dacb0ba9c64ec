// skip.h - lets a test case say that it cannot run here: call skip() and return.
//
// Its program then ends with skipped_exit_code if nothing failed. ctest shows it as Skipped, and
// tools/test counts it. A test case that returns without an assertion and without this call fails.
#pragma once

#include <string>

namespace moorage::test {

constexpr int skipped_exit_code = 77;

void skip(const std::string &reason);

}  // namespace moorage::test

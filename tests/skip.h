// skip.h - how a test case says that it cannot run here: it calls skip() and returns.
//
// Its program then ends with skipped_exit_code if nothing failed, which ctest shows as Skipped and
// tools/test counts; a test case that returns without an assertion and without this call fails.
#pragma once

#include <string>

namespace moorage::test {

constexpr int skipped_exit_code = 77;

void skip(const std::string &reason);

}  // namespace moorage::test

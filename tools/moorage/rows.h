// rows.h - pieces of work side by side, each in a process of its own: one that dies takes no other
// with it (core/decisions/0019).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/report/failed_rows.h"

namespace moorage::tool {

// Of --help.
inline constexpr const char *rows_footer =
    "A row that fails, or whose policy dies, is shown as FAILED with the reason; the others are "
    "written\nall the same, and the exit code is 1.";

struct row_end {
    std::string bytes;  // what the work returned
    // Why there are none; its label is the caller's to fill in.
    std::optional<core::failed_row> failure;
};

// At most `at_once` at a time (0: one per core). Work is done in a child process, which has what
// this one has at its start; `ended` is called here, in the order in which they end. With
// MOORAGE_ONE_PROCESS=1 all is done here, one after the other.
void run_rows(size_t count, uint32_t at_once,
              const std::function<core::result<std::string>(size_t index)> &work,
              const std::function<void(size_t index, row_end how)> &ended);

// Prints failures. The exit code where `finished` rows came to their end: a mistake in what was
// asked, made in every row, is one of the whole.
int exit_code_of(size_t finished, std::span<const core::failed_row> failures);

}  // namespace moorage::tool

// rows.h - pieces of work side by side, in processes apart from this one: a row that dies takes no
// other with it (core/decisions/0019, 0048).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/result.h"
#include "core/report/failed_rows.h"
#include "tools/moorage/row_file.h"

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

struct rows_options {
    uint32_t at_once = 0;  // processes side by side; 0: one per core
    // Each row in a process that did nothing before: what is measured must not depend on others.
    bool is_measured = false;
    // Where rows go as they end, and come from where they are known; null: nowhere.
    row_file *kept = nullptr;
    std::function<row_identity(size_t index)> identity = nullptr;
    // What a line of the file says of a row besides, from what its work returned.
    std::function<core::json(const std::string &bytes)> figures = nullptr;
};

// Work is done in child processes, which have what this one has at their start, and do one row
// after the other as long as nothing of a row stays behind; `ended` is called here, in the order in
// which they end. With MOORAGE_ONE_PROCESS=1 all is done here, one after the other. The answer is
// the signal that this process was asked to end with, 0 for none: then some rows have not ended,
// and what there is is to be shown before end_interrupted() (output.h).
int run_rows(size_t count, const rows_options &options,
             const std::function<core::result<std::string>(size_t index)> &work,
             const std::function<void(size_t index, row_end how)> &ended);

// Prints failures. The exit code where `finished` rows came to their end: a mistake in what was
// asked, made in every row, is one of the whole.
int exit_code_of(size_t finished, std::span<const core::failed_row> failures);

}  // namespace moorage::tool

// rows.h - pieces of work side by side, in processes of their own. A row that dies does not harm
// others (core/decisions/0019, 0048).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/result.h"
#include "tools/comparison/failed_rows.h"
#include "tools/moorage/row_file.h"

namespace moorage::tool {

// Of --help.
inline constexpr const char *rows_footer =
    "A row that fails, or whose policy dies, is shown as FAILED with the reason. The other rows "
    "are\n"
    "written all the same. The exit code is then 1.";

struct row_end {
    std::string bytes;  // what the work returned
    // The failure, if there are no bytes. The caller fills in its label.
    std::optional<core::failed_row> failure;
};

struct rows_options {
    uint32_t at_once = 0;  // processes side by side; 0: one per core
    // Gives each row a fresh process, because measurements must not depend on other rows.
    bool is_measured = false;
    // Keeps rows as they end, and supplies known rows. Null: rows are not kept.
    row_file *kept = nullptr;
    std::function<row_identity(size_t index)> identity = nullptr;
    // Further figures for the row's line in the file, computed from the bytes that its work
    // returned.
    std::function<core::json(const std::string &bytes)> figures = nullptr;
};

// Works in child processes, which inherit the state of this one. A child does one row after the
// other as long as nothing of a row stays behind. `ended` is called in this process, in the order
// in which rows end. With MOORAGE_ONE_PROCESS=1 all rows run here, one after the other. Returns the
// signal that asked this process to end, 0 for none. After a signal some rows have not ended. Show
// the others, then call end_interrupted() (output.h).
int run_rows(size_t count, const rows_options &options,
             const std::function<core::result<std::string>(size_t index)> &work,
             const std::function<void(size_t index, row_end finished_row)> &ended);

// Prints failures. Returns the exit code after `finished` rows ended. If every row has the same
// usage error, it is an error of the command.
int exit_code_of(size_t finished, std::span<const core::failed_row> failures);

}  // namespace moorage::tool

// output.h - what the commands share: errors to standard error, figures to files, --set and
// --plugins.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/config/run_config.h"
#include "tools/moorage/command.h"

namespace moorage::tool {

// Prints the error and returns its exit code.
inline int fail(const core::error &what) {
    std::fprintf(stderr, "moorage: %s\n", what.text.c_str());
    return what.usage ? exit_usage : exit_failed;
}

// Writes a whole file, or standard output for "-". A file that existed is replaced only by a whole
// one.
core::status write_text(const std::string &file, const std::string &text);
// Figures for --json, likewise. Text that is not UTF-8 (a file's name, say) is replaced by U+FFFD.
core::status write_json(const std::string &file, const core::json &figures);

core::result<std::vector<core::override_value>> read_overrides(
    const std::vector<std::string> &texts);
// Every combination of the sweeps' values, the first sweep changing slowest; one of nothing where
// nothing is swept.
std::vector<std::vector<core::override_value>> combinations(const std::vector<core::sweep> &sweeps);

}  // namespace moorage::tool

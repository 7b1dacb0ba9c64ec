// output.h - the one door for what commands say and write, and settings as every command reads
// them.
//
// Nothing else here writes to standard output or standard error. What a terminal would obey is
// shown instead (core/base/visible.h): names, titles and generated text come from others. The
// exact text is in the JSON. Files appear under their names only when whole.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/config/run_config.h"
#include "tools/moorage/command.h"

namespace moorage::tool {

// Before anything is opened: what the process was started without of its first three descriptors
// is taken, so that no file or pipe of the program's own gets such a number and what is written
// there.
void secure_standard_descriptors();
// From now on what is printed goes to standard output as it is now, and what others write there, a
// policy say, goes to standard error: a report stays what it is.
void keep_output_apart();
// Ends the process by the signal that interrupted its rows, once all that there is was written. The
// exit code is for a process that the signal does not end.
int end_interrupted(int signal);
// "SIGINT"
std::string name_of_signal(int signal);
// To standard output. A failure is kept for finish_output().
void print(std::string_view text);
bool output_failed();
// As wide as the terminal that standard output is, from 80 to 160; 100 where it is none.
size_t output_columns();
// To standard error; a failure there has no one to tell it to.
void print_error(std::string_view text);
// That an old spelling was taken, and what to write.
void tell_old(const std::string &old, const std::string &now);
// Prints the error and returns its exit code.
int fail(const core::error &what);
// "HTML report: FILE", beside the JSON where that goes to standard output.
void print_written(std::string_view what, const std::string &file, const std::string &json_file);
// The exit code of a command that wants to end with `code`: what it printed must have arrived, and
// what it read must have stayed as it was.
int finish_output(int code);
// Refuses an option without a value, and two that would write the same file, however spelled.
core::status check_outputs(const std::vector<std::pair<std::string, std::string>> &outputs);

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

// output.h - the only place that prints and writes, and settings as every command reads them.
//
// Nothing else here writes to standard output or standard error. Names, titles and generated text
// come from others, so control characters are shown, not sent to the terminal
// (core/base/visible.h). The exact text is in the JSON. Files appear under their names only when
// whole.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/host/supervise.h"
#include "tools/moorage/command.h"

namespace moorage::tool {

// Call before anything is opened. Occupies those of the first three descriptors that the process
// was started without. Otherwise a file or pipe of the program could get such a number, and receive
// output that is meant for it.
void secure_standard_descriptors();
// From now on print() goes to the present standard output. Anything that others write there, such
// as a policy, goes to standard error. So a report stays intact.
void keep_output_apart();
// For a child whose parent prints for it: takes standard output out of the reach of its policies.
void print_through_parent();
// Whether anything went to standard output.
bool has_output_begun();
// Prints for a child. Returns errno of a failure, otherwise 0.
int print_for_child(std::string_view shown, core::printed_on target);
// Ends the process by the signal that interrupted its rows. Call it when all finished rows are
// written. The exit code is for a process that the signal does not end.
int end_interrupted(int signal);
// "SIGINT"
std::string name_of_signal(int signal);
// Writes to standard output. A failure is kept for finish_output().
void print(std::string_view text);
bool output_failed();
// The width of the terminal at standard output, from 80 to 160; 100 without a terminal.
size_t output_columns();
// Writes to standard error. A failure there is ignored.
void print_error(std::string_view text);
// Says that an old spelling was accepted, and gives the new one.
void warn_old_spelling(const std::string &old, const std::string &now);
// Prints the error and returns its exit code.
int fail(const core::error &reason);
// Prints "HTML report: FILE"; to standard error if the JSON goes to standard output.
void print_written(std::string_view title, const std::string &file, const std::string &json_file);
// The exit code of a command that wants to end with `code`. Its output must have arrived, and its
// input files must not have changed.
int finish_output(int code);
// Refuses an option without a value or with another option as its value, and two options that would
// write the same file, however spelled.
core::status check_outputs(const std::vector<std::pair<std::string, std::string>> &outputs);

// Whether reports can be written at their end: --json, --html, --csv. Tries now, before the work.
core::status check_can_be_written(const std::vector<std::pair<std::string, std::string>> &outputs);

// Refuses an output that is the same file as another word of the command line, an input.
core::status check_inputs(const std::vector<std::pair<std::string, std::string>> &outputs, int argc,
                          char **argv);
// Refuses an output that would replace a file which this command has read.
core::status check_not_read(const std::string &file);
// Writes a whole file; "-" is standard output. An existing file is replaced only by a whole one.
core::status write_text(const std::string &file, const std::string &text);
// Writes figures for --json in the same way. Text that is not UTF-8, such as a file's name, is
// replaced by U+FFFD.
core::status write_json(const std::string &file, const core::json &figures);

core::result<std::vector<core::override_value>> read_overrides(
    const std::vector<std::string> &texts);
// Every combination of the sweeps' values. The first sweep changes slowest. Without sweeps there is
// one empty combination.
std::vector<std::vector<core::override_value>> combinations(const std::vector<core::sweep> &sweeps);

}  // namespace moorage::tool

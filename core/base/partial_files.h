// partial_files.h - the names of files that are being written. A signal handler and the parent
// process can read them and remove half-written files when the program ends.
#pragma once

#include <filesystem>
#include <string>

namespace moorage::core {

// Resolves a path from the folder in which the program was started. A policy may change the working
// directory before a report is written.
std::filesystem::path output_path(const std::filesystem::path &path);

// Notes a file or directory of this process before it is made. Give the result to
// forget_partial_file() once the file is complete or removed. -1: the name is too long or the table
// is full, and nothing is noted.
int note_partial_file(const std::string &absolute_path);
void forget_partial_file(int entry);

// Notes and makes "PLACE.PROCESS-N.part". Names that are taken by left-overs are skipped. `make`
// makes the file of a path and returns what open(2) would.
struct partial_draft {
    std::string path;
    int make_result;  // of `make`; -1: failed with errno, and nothing is noted
    int table_entry;
};
partial_draft make_partial(const std::string &place, int (*make)(const char *path));

// Removes the files that a process has noted and not forgotten, and its directories once they are
// empty. 0: those of all processes that share the table, which are the first that used it and all
// that were forked from it since. Safe in a signal handler.
void remove_partial_files(int process);

// From now on SIGINT, SIGTERM and SIGHUP first remove this process's partial files, then act as
// usual. An ignored signal stays ignored (nohup). Call it before any fork.
void remove_partial_files_on_signals();

}  // namespace moorage::core

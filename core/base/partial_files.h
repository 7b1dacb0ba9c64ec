// partial_files.h - the names of files that are being written, kept where a signal handler and the
// parent process can read them, so that nothing half written outlives the program.
#pragma once

#include <filesystem>
#include <string>

namespace moorage::core {

// Of the folder in which the program was started: a policy may change the working directory before
// a report is written.
std::filesystem::path output_path(const std::filesystem::path &given);

// Notes a file or a directory of this process before it is made; the place is given to
// forget_partial_file() once it is whole or gone. -1: the name is too long or the table full, and
// nothing is noted.
int note_partial_file(const std::string &absolute_path);
void forget_partial_file(int place);

// Notes and makes "PLACE.PROCESS-N.part", passing by left-overs of the name. `make` makes one of
// the path and answers as open(2) does.
struct made_partial {
    std::string path;
    int answer;  // of `make`; -1: failed, errno says why, and nothing is noted
    int noted;
};
made_partial make_partial(const std::string &place, int (*make)(const char *path));

// Removes what a process has noted and not forgotten, directories once their files are gone; 0:
// what all processes have that share the table, the first that used it and those forked below it
// since. Safe in a signal handler.
void remove_partial_files(int process);

// From now on SIGINT, SIGTERM and SIGHUP remove this process's partial files before they take their
// course. One that is ignored stays so (nohup). Call it before any fork.
void remove_partial_files_on_signals();

}  // namespace moorage::core

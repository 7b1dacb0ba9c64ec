// atomic_directory.h - a directory that appears whole or not at all. It is written beside its final
// place, then renamed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

class atomic_directory {
public:
    // The final place may hold nothing or an empty directory, which commit() replaces. If a signal
    // ends the program, nothing is left behind either (partial_files.h).
    static result<atomic_directory> create(const std::filesystem::path &path);
    atomic_directory(atomic_directory &&source) noexcept;
    atomic_directory &operator=(atomic_directory &&) = delete;
    ~atomic_directory();  // without commit(): removes everything

    // The path at which to write the file `name` until commit(). Name all files in this way: a file
    // that was not named here stays behind after a signal.
    std::filesystem::path file(const std::string &name);
    status commit();  // call at most once

private:
    atomic_directory() = default;
    std::filesystem::path path_;           // as given, for messages
    std::filesystem::path place_, draft_;  // absolute; draft_ is empty once renamed
    std::vector<int> table_entries_;       // entries of the draft and its files in the table of
                                           // partial files
};

}  // namespace moorage::core

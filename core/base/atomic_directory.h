// atomic_directory.h - a directory that appears whole or not at all: written beside its place, then
// renamed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

class atomic_directory {
public:
    // The place may hold an empty directory, which is replaced at commit, or nothing. A signal that
    // ends the program leaves no trace either (partial_files.h).
    static result<atomic_directory> create(const std::filesystem::path &path);
    atomic_directory(atomic_directory &&other) noexcept;
    atomic_directory &operator=(atomic_directory &&) = delete;
    ~atomic_directory();  // without a commit: no trace of it is left

    // Where to write a file of that name until the commit. All files are named so: what is not is
    // left behind by a signal.
    std::filesystem::path file(const std::string &name);
    status commit();  // once

private:
    atomic_directory() = default;
    std::filesystem::path path_;           // as given, for messages
    std::filesystem::path place_, draft_;  // absolute; no draft: renamed
    std::vector<int> noted_;               // the draft and its files among the partial files
};

}  // namespace moorage::core

// atomic_file.h - a file that appears whole or not at all: written beside its place, then renamed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/result.h"

namespace moorage::core {

class atomic_file {
public:
    // The place may hold a regular file, which is replaced at commit, or nothing; where it is a
    // link, that is what the link leads to, and the link stays. A signal that ends the program
    // leaves no trace either (partial_files.h).
    static result<atomic_file> create(const std::filesystem::path &path);
    atomic_file(atomic_file &&other) noexcept;
    atomic_file &operator=(atomic_file &&) = delete;
    ~atomic_file();  // without a commit: no trace of it is left

    // Buffered; an error shows at commit at the latest.
    void write(std::span<const std::byte> bytes);
    // Anywhere in the file, from any thread, past the buffer. Not mixed with write().
    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    status written() const;  // what of it has failed so far
    status commit();         // once
    // Where it is until it is committed: to read what has been written.
    const std::string &draft() const { return temporary_; }

private:
    atomic_file() = default;
    void flush();
    std::filesystem::path path_;  // as given, for messages
    // Absolute: a policy may change the working directory. `temporary_` is empty once renamed.
    std::string place_, temporary_;
    std::string buffer_;
    int file_ = -1;
    int noted_ = -1;                // among the partial files
    std::atomic<int> failure_ = 0;  // errno of the first write that failed
};

}  // namespace moorage::core

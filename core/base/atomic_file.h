// atomic_file.h - a file that appears whole or not at all. It is written beside its final place,
// then renamed.
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
    // The final place may hold nothing or a regular file, which commit() replaces. If it is a link,
    // the file that the link leads to is replaced, and the link stays. If a signal ends the
    // program, nothing is left behind either (partial_files.h).
    static result<atomic_file> create(const std::filesystem::path &path);
    atomic_file(atomic_file &&source) noexcept;
    atomic_file &operator=(atomic_file &&) = delete;
    ~atomic_file();  // without commit(): removes the draft

    // Buffered. An error is reported by commit() at the latest.
    void write(std::span<const std::byte> bytes);
    // Writes at any offset, from any thread, without the buffer. Do not mix with write().
    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    status write_status() const;  // the first error so far
    status commit();              // call at most once
    // The final place.
    const std::string &final_path() const { return final_path_; }
    // The path of the file until commit(), for reading what has been written.
    const std::string &draft_path() const { return draft_path_; }

private:
    atomic_file() = default;
    void flush();
    std::filesystem::path path_;  // as given, for messages
    // Absolute: a policy may change the working directory. `draft_path_` is empty once renamed.
    std::string final_path_, draft_path_;
    std::string buffer_;
    int file_ = -1;
    int table_entry_ = -1;          // entry in the table of partial files
    std::atomic<int> failure_ = 0;  // errno of the first write that failed
};

}  // namespace moorage::core

// mapped_file.h - a file mapped read-only into memory, whose pages can be handed back to the
// kernel, and what to say of files that others change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>

#include "core/base/result.h"

namespace moorage::core {

struct mapped_record;

// Others may cut or overwrite the file while it is mapped: a read behind its new end is SIGBUS,
// which a handler can explain with mapped_file_at(); what was overwritten is read as it is now, so
// ids from a file are checked where they are used, and mapped_files_unchanged() is asked before
// figures are believed.
class mapped_file {
public:
    // Regular files only. An empty file maps to an empty span.
    static result<mapped_file> open(const std::filesystem::path &path);
    mapped_file() = default;
    mapped_file(mapped_file &&other) noexcept;
    mapped_file &operator=(mapped_file &&other) noexcept;
    ~mapped_file();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    // The whole memory pages within [begin, end) leave the resident set; a later read brings them
    // back. Safe while other threads read.
    void release(uint64_t begin, uint64_t end) const;

private:
    const std::byte *data_ = nullptr;
    size_t size_ = 0;
    mapped_record *record_ = nullptr;  // in the list of all that are mapped
};

// While it lives, the paths of files that this thread opens are added to `files`.
class opened_files {
public:
    explicit opened_files(std::set<std::filesystem::path> &files);
    ~opened_files();
    opened_files(const opened_files &) = delete;

private:
    std::set<std::filesystem::path> *const before_;
};

// The path of the mapped file that `address` lies in; null: in none. Async-signal-safe. The text
// stays until the file is closed.
const char *mapped_file_at(const void *address);

// Where an address lies: in which mapped file, and how far from its beginning.
struct mapped_place {
    const void *id;  // of the mapping, while it lasts
    const char *name;
    uint64_t offset;
};
std::optional<mapped_place> mapped_place_of(const void *address);
// The file of a mapping once more, for reading, with further flags of open(2); the caller closes
// it. It is the file that is mapped, though another should have its name now; else an error.
result<int> open_mapped(const mapped_place &place, int flags);

// Whether a path, by whatever name, is that of a file that is mapped now: to write over it would be
// to lose it.
bool mapped_file_has(const std::filesystem::path &path);

// The path of the first file of which mapped_files_unchanged() would complain; null: of none.
// Async-signal-safe.
const char *mapped_file_changed();

// Whether every file mapped since the process began, open or closed again, kept its size and its
// time of change while it was mapped; else an error that names the first that did not. A file
// replaced by another of its name did not change: what was opened is still read.
status mapped_files_unchanged();

}  // namespace moorage::core

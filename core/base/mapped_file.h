// mapped_file.h - a file mapped read-only into memory. Its pages can be returned to the kernel, and
// changes by other programs are noticed.
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

// Other programs may shorten or overwrite the file while it is mapped. A read behind the new end
// raises SIGBUS; a handler can explain it with mapped_path_at(). Overwritten bytes are read as they
// are now. So check ids from a file where they are used, and call mapped_files_unchanged() before
// trusting figures.
class mapped_file {
public:
    // Regular files only. An empty file maps to an empty span.
    static result<mapped_file> open(const std::filesystem::path &path);
    mapped_file() = default;
    mapped_file(mapped_file &&source) noexcept;
    mapped_file &operator=(mapped_file &&source) noexcept;
    ~mapped_file();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    // Removes the whole memory pages within [begin, end) from the resident set. A later read brings
    // them back. Safe while other threads read.
    void release(uint64_t begin, uint64_t end) const;

private:
    const std::byte *data_ = nullptr;
    size_t size_ = 0;
    mapped_record *record_ = nullptr;  // in the list of all mappings
};

// Adds the path of each file that this thread opens to `files` while it lives.
class opened_files {
public:
    explicit opened_files(std::set<std::filesystem::path> &files);
    ~opened_files();
    opened_files(const opened_files &) = delete;

private:
    std::set<std::filesystem::path> *const previous_;
};

// The path of the mapped file that contains `address`; null: none does. Async-signal-safe. The text
// stays valid until the file is closed.
const char *mapped_path_at(const void *address);

// The mapped file that contains an address, and the offset in it.
struct mapped_place {
    const void *id;  // of the mapping, valid while it lasts
    const char *name;
    uint64_t offset;
};
std::optional<mapped_place> mapped_place_of(const void *address);
// Opens the file of a mapping again for reading, with further flags of open(2). The caller closes
// it. Fails unless it is the file that is mapped: another file may have its name by now.
result<int> open_mapped(const mapped_place &place, int flags);

// Does the path name a file that is mapped now, whatever its spelling? Writing over it would
// destroy it.
bool is_mapped_file(const std::filesystem::path &path);

// Notes a file that is read by other means than a mapping.
void note_read_file(const std::filesystem::path &path);
// Has this process read the file that the path names, whatever its spelling? Then an output must
// not replace it.
bool was_file_read(const std::filesystem::path &path);

// The path of the first file that mapped_files_unchanged() would report; null: none.
// Async-signal-safe.
const char *first_changed_file();

// Checks every file mapped since the process began, whether it is still open or not. Each must have
// kept its size and its time of change while it was mapped. The error names the first file that did
// not. A file that was replaced by another one of the same name counts as unchanged, because the
// old one is still read.
status mapped_files_unchanged();

}  // namespace moorage::core

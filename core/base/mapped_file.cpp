// mapped_file.cpp - mmap, munmap and madvise, and the list of what is mapped.
#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/base/foreign_file.h"
#include "core/base/text.h"

namespace moorage::core {

// One mapping. A signal handler may walk the list at any time. So records are never freed but
// reused; a record whose addresses are zero holds no memory.
struct mapped_record {
    std::atomic<uintptr_t> begin{0}, end{0};
    char name[PATH_MAX] = "";
    std::atomic<bool> taken{false};    // used by a mapped_file
    std::atomic<bool> changed{false};  // stays set after the file is closed
    int file = -1;                     // open while it is mapped
    struct stat opened {};             // the file's state when it was opened
    mapped_record *next = nullptr;
};

namespace {

// One list per process, because signals, which use it, belong to the process.
std::mutex records_lock;  // for everything but walking
std::atomic<mapped_record *> records{nullptr};

// Every file that was read, by device and number.
std::set<std::pair<dev_t, ino_t>> &read_files() {
    static std::set<std::pair<dev_t, ino_t>> files;
    return files;
}

uint64_t page_size() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

mapped_record *new_record() {
    for (mapped_record *record = records.load(); record != nullptr; record = record->next)
        if (!record->taken.load() && !record->changed.load()) return record;
    auto *created = new mapped_record;
    created->next = records.load();
    records.store(created);
    return created;
}

// A model may have thousands of shards, and a process has some thousand file descriptors. Later
// files are identified by name only.
int keep_open_if_few(int file) {
    constexpr int files_max = 512;
    if (file < files_max) return file;
    ::close(file);
    return -1;
}

mapped_record *add_record(const std::filesystem::path &path, int file, const struct stat &about,
                          const std::byte *data) {
    const std::scoped_lock held(records_lock);
    read_files().emplace(about.st_dev, about.st_ino);
    mapped_record *record = new_record();
    std::snprintf(record->name, sizeof record->name, "%s", path.c_str());
    record->file = file;
    record->opened = about;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto size = data == nullptr ? 0 : static_cast<uintptr_t>(about.st_size);
    const uintptr_t page = page_size();
    record->begin.store(begin);
    record->end.store(begin + (size + page - 1) / page * page);  // the kernel maps whole pages
    record->taken.store(true);
    return record;
}

// Compares size and time of change of the content. The inode's time of change (ctime) is ignored:
// moving, linking or removing a file changes it and does no harm.
bool has_changed(const mapped_record &record) {
    if (record.changed.load()) return true;
    if (!record.taken.load()) return false;
    struct stat now {};
    const struct stat &original = record.opened;
    if (record.file >= 0 ? ::fstat(record.file, &now) != 0 : ::stat(record.name, &now) != 0)
        return false;
    if (now.st_dev != original.st_dev || now.st_ino != original.st_ino) return false;  // replaced
    return now.st_size != original.st_size || now.st_mtim.tv_sec != original.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != original.st_mtim.tv_nsec;
}

void close_record(mapped_record &record) {
    const std::scoped_lock held(records_lock);
    record.changed.store(has_changed(record));
    record.taken.store(false);
    record.end.store(0);
    record.begin.store(0);
    if (record.file >= 0) ::close(record.file);
}

error failed(const std::filesystem::path &path, const char *action) {
    return {format("{}: cannot {}: {}", path.string(), action, std::strerror(errno))};
}

thread_local std::set<std::filesystem::path> *opened_paths = nullptr;

}  // namespace

opened_files::opened_files(std::set<std::filesystem::path> &files)
    : previous_(std::exchange(opened_paths, &files)) {}
opened_files::~opened_files() { opened_paths = previous_; }

void note_read_file(const std::filesystem::path &path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return;
    const std::scoped_lock held(records_lock);
    read_files().emplace(about.st_dev, about.st_ino);
}

bool was_file_read(const std::filesystem::path &path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return false;
    const std::scoped_lock held(records_lock);
    return read_files().contains({about.st_dev, about.st_ino});
}

result<mapped_file> mapped_file::open(const std::filesystem::path &path) {
    if (opened_paths) opened_paths->insert(path);
    // Non-blocking, so that a named pipe is refused below and not waited for.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return failed(path, "open");
    struct stat about {};
    if (::fstat(file, &about) != 0) {
        const error failure = failed(path, "examine");
        ::close(file);
        return failure;
    }
    if (!S_ISREG(about.st_mode)) {
        ::close(file);
        return error{format("{}: not a regular file, which memory mapping needs", path.string())};
    }
    mapped_file mapped;
    mapped.size_ = static_cast<size_t>(about.st_size);
    if (mapped.size_ > 0) {
        void *address = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file, 0);
        if (address == MAP_FAILED) {
            mapped.size_ = 0;
            const error failure = failed(path, "map");
            ::close(file);
            return failure;
        }
        mapped.data_ = static_cast<const std::byte *>(address);
    }
    const std::string pointer = lfs_pointer_problem(
        mapped.size_ > foreign_bytes ? std::span<const std::byte>() : mapped.bytes());
    if (!pointer.empty()) {
        ::close(file);
        return error{format("{}: {}", path.string(), pointer)};
    }
    mapped.record_ = add_record(path, keep_open_if_few(file), about, mapped.data_);
    return mapped;
}

mapped_file::mapped_file(mapped_file &&source) noexcept
    : data_(std::exchange(source.data_, nullptr)),
      size_(std::exchange(source.size_, 0)),
      record_(std::exchange(source.record_, nullptr)) {}

mapped_file &mapped_file::operator=(mapped_file &&source) noexcept {
    std::swap(data_, source.data_);
    std::swap(size_, source.size_);
    std::swap(record_, source.record_);
    return *this;
}

mapped_file::~mapped_file() {
    if (record_ != nullptr) close_record(*record_);
    if (data_ != nullptr) ::munmap(const_cast<std::byte *>(data_), size_);
}

void mapped_file::release(uint64_t begin, uint64_t end) const {
    const uint64_t page = page_size();
    const uint64_t first = (begin + page - 1) / page * page;
    const uint64_t last = std::min<uint64_t>(end, size_) / page * page;
    if (first >= last) return;
    // This is only advice: a failure costs memory, not correctness.
    (void)::madvise(const_cast<std::byte *>(data_) + first, last - first, MADV_DONTNEED);
}

static const mapped_record *record_at(const void *address) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    for (const mapped_record *record = records.load(); record != nullptr; record = record->next)
        if (record->begin.load() <= wanted && wanted < record->end.load()) return record;
    return nullptr;
}

const char *mapped_path_at(const void *address) {
    const mapped_record *found = record_at(address);
    return found == nullptr ? nullptr : found->name;
}

std::optional<mapped_place> mapped_place_of(const void *address) {
    const mapped_record *found = record_at(address);
    if (found == nullptr) return std::nullopt;
    return mapped_place{found, found->name,
                        reinterpret_cast<uintptr_t>(address) - found->begin.load()};
}

result<int> open_mapped(const mapped_place &place, int flags) {
    const auto &record = *static_cast<const mapped_record *>(place.id);
    const std::string name =
        record.file < 0 ? std::string(record.name) : format("/proc/self/fd/{}", record.file);
    const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | flags);
    if (file < 0) return failed(record.name, "open");
    struct stat now {};
    if (::fstat(file, &now) == 0 && now.st_dev == record.opened.st_dev &&
        now.st_ino == record.opened.st_ino)
        return file;
    ::close(file);
    return error{format("{}: another file has that name now", record.name)};
}

bool is_mapped_file(const std::filesystem::path &path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return false;
    const std::scoped_lock held(records_lock);
    for (const mapped_record *record = records.load(); record != nullptr; record = record->next)
        if (record->taken.load() && record->opened.st_dev == about.st_dev &&
            record->opened.st_ino == about.st_ino)
            return true;
    return false;
}

const char *first_changed_file() {
    for (const mapped_record *record = records.load(); record != nullptr; record = record->next)
        if (has_changed(*record)) return record->name;
    return nullptr;
}

status mapped_files_unchanged() {
    const std::scoped_lock held(records_lock);
    if (const char *name = first_changed_file())
        return error{
            format("{}: changed while it was read, so figures from it would mean nothing; "
                   "run again when nothing writes it",
                   name)};
    return success();
}

}  // namespace moorage::core

// mapped_file.cpp - mmap, munmap and madvise.
#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

namespace {

error failed(const std::filesystem::path &path, const char *what) {
    return {format("{}: cannot {}: {}", path.string(), what, std::strerror(errno))};
}

}  // namespace

result<mapped_file> mapped_file::open(const std::filesystem::path &path) {
    // Non-blocking, so that a named pipe is refused below instead of waited for.
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
    ::close(file);
    return mapped;
}

mapped_file::mapped_file(mapped_file &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

mapped_file &mapped_file::operator=(mapped_file &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

mapped_file::~mapped_file() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte *>(data_), size_);
}

void mapped_file::release(uint64_t begin, uint64_t end) const {
    const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t first = (begin + page - 1) / page * page;
    const uint64_t last = std::min<uint64_t>(end, size_) / page * page;
    if (first >= last) return;
    // Advice only: a failure costs memory, not correctness.
    (void)::madvise(const_cast<std::byte *>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace moorage::core

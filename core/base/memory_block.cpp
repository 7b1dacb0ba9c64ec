// memory_block.cpp - anonymous mappings, with large pages if the system gives them.
#include "core/base/memory_block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/base/machine_limits.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Rounds up to whole large pages if there is at least one. The system uses large pages only where a
// whole one fits.
uint64_t mapped_bytes(uint64_t bytes) {
    constexpr uint64_t large_page_bytes = 2 << 20;
    if (bytes < large_page_bytes) return bytes;
    return (bytes + large_page_bytes - 1) / large_page_bytes * large_page_bytes;
}

error not_to_be_had(const std::string &purpose, uint64_t bytes) {
    return {format("{} takes {}, which cannot be had: {}", purpose,
                   human_bytes(static_cast<double>(bytes)), std::strerror(errno))};
}

}  // namespace

result<memory_block> memory_block::create(uint64_t bytes, const std::string &purpose) {
    memory_block made;
    if (bytes == 0) return made;
    // The system may promise more memory than it has and kill the program when it is touched.
    const uint64_t available = memory_available_bytes();
    if (bytes > available)
        return error{format("{} takes {}, and {} of memory are available", purpose,
                            human_bytes(static_cast<double>(bytes)),
                            human_bytes(static_cast<double>(available)))};
    const uint64_t length = mapped_bytes(bytes);
    void *address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return not_to_be_had(purpose, bytes);
    // Advice only.
    (void)::madvise(address, length, MADV_HUGEPAGE);
    made.data_ = static_cast<std::byte *>(address);
    made.bytes_ = bytes;
    return made;
}

status memory_block::touch(const std::string &purpose) const {
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
    if (bytes_ == 0 || ::madvise(data_, bytes_, populate_write) == 0) return success();
    if (errno != EINVAL) return not_to_be_had(purpose, bytes_);
    constexpr uint64_t page_bytes = 4096;
    for (uint64_t at = 0; at < bytes_; at += page_bytes) {
        volatile std::byte &one = data_[at];
        one = static_cast<std::byte>(one);
    }
    return success();
}

memory_block::memory_block(memory_block &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

memory_block &memory_block::operator=(memory_block &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

memory_block::~memory_block() {
    if (data_ != nullptr) ::munmap(data_, mapped_bytes(bytes_));
}

uint64_t memory_available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    uint64_t kibibytes = 0, available = UINT64_MAX;
    while (available == UINT64_MAX && file >> key >> kibibytes) {
        if (key == "MemAvailable:") available = kibibytes * 1024;
        std::getline(file, unit);
    }
    return std::min(available, control_groups::of_this_process("/").memory_available_bytes());
}

}  // namespace moorage::core

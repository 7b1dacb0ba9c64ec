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

error allocation_error(const std::string &purpose, uint64_t bytes) {
    return {format("{} takes {}, which cannot be had: {}", purpose,
                   human_bytes(static_cast<double>(bytes)), std::strerror(errno))};
}

}  // namespace

result<memory_block> memory_block::create(uint64_t bytes, const std::string &purpose) {
    memory_block block;
    if (bytes == 0) return block;
    // The system may promise more memory than it has and kill the program when it is touched.
    const uint64_t available = memory_available_bytes();
    if (bytes > available)
        return error{format("{} takes {}, and {} of memory are available", purpose,
                            human_bytes(static_cast<double>(bytes)),
                            human_bytes(static_cast<double>(available)))};
    const uint64_t length = mapped_bytes(bytes);
    void *address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return allocation_error(purpose, bytes);
    // Advice only.
    (void)::madvise(address, length, MADV_HUGEPAGE);
    block.data_ = static_cast<std::byte *>(address);
    block.bytes_ = bytes;
    return block;
}

status memory_block::touch(const std::string &purpose) const {
    constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
    if (bytes_ == 0 || ::madvise(data_, bytes_, populate_write) == 0) return success();
    if (errno != EINVAL) return allocation_error(purpose, bytes_);
    constexpr uint64_t page_bytes = 4096;
    for (uint64_t offset = 0; offset < bytes_; offset += page_bytes) {
        volatile std::byte &page_byte = data_[offset];
        page_byte = static_cast<std::byte>(page_byte);
    }
    return success();
}

memory_block::memory_block(memory_block &&source) noexcept
    : data_(std::exchange(source.data_, nullptr)), bytes_(std::exchange(source.bytes_, 0)) {}

memory_block &memory_block::operator=(memory_block &&source) noexcept {
    std::swap(data_, source.data_);
    std::swap(bytes_, source.bytes_);
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

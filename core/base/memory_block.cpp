// memory_block.cpp - anonymous mappings, with large pages where the system gives them.
#include "core/base/memory_block.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

result<memory_block> memory_block::create(uint64_t bytes, const std::string &purpose) {
    memory_block made;
    if (bytes == 0) return made;
    // The system may promise more than it has and end the program when it is touched.
    const uint64_t available = memory_available_bytes();
    if (bytes > available)
        return error{format("{} takes {}, and {} of memory are available", purpose,
                            human_bytes(static_cast<double>(bytes)),
                            human_bytes(static_cast<double>(available)))};
    void *address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        return error{format("{} takes {}, which cannot be had: {}", purpose,
                            human_bytes(static_cast<double>(bytes)), std::strerror(errno))};
    // Advice only.
    (void)::madvise(address, bytes, MADV_HUGEPAGE);
    made.data_ = static_cast<std::byte *>(address);
    made.bytes_ = bytes;
    return made;
}

memory_block::memory_block(memory_block &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

memory_block &memory_block::operator=(memory_block &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

memory_block::~memory_block() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

uint64_t memory_available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    uint64_t kibibytes = 0;
    while (file >> key >> kibibytes) {
        if (key == "MemAvailable:") return kibibytes * 1024;
        std::getline(file, unit);
    }
    return UINT64_MAX;
}

}  // namespace moorage::core

// memory_block.cpp - anonymous mappings, with large pages where the system gives them.
#include "core/model/memory_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

result<memory_block> memory_block::create(uint64_t bytes, const std::string &purpose) {
    memory_block made;
    if (bytes == 0) return made;
    const uint64_t machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                             static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    if (bytes > machine)
        return error{format("{} takes {}, but the machine has {} of memory", purpose,
                            human_bytes(static_cast<double>(bytes)),
                            human_bytes(static_cast<double>(machine)))};
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

}  // namespace moorage::core

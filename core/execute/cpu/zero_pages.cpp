// zero_pages.cpp - anonymous memory of the kernel, which gives pages as they are touched.
#include "core/execute/cpu/zero_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

result<zero_pages> zero_pages::create(uint64_t bytes, const std::string &purpose) {
    zero_pages made;
    if (bytes == 0) return made;
    void *data = MAP_FAILED;
    if (bytes <= std::numeric_limits<size_t>::max())
        data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return error{format("{}: the system refused {} of memory: {}", purpose,
                            human_bytes(static_cast<double>(bytes)), std::strerror(errno))};
    made.data_ = static_cast<std::byte *>(data);
    made.bytes_ = bytes;
    return made;
}

zero_pages::zero_pages(zero_pages &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

zero_pages &zero_pages::operator=(zero_pages &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

zero_pages::~zero_pages() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
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

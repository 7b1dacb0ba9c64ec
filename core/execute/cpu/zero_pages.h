// zero_pages.h - large memory that reads as zero and takes room only where it has been written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace moorage::core {

class zero_pages {
public:
    // `purpose` is what an error calls it.
    static result<zero_pages> create(uint64_t bytes, const std::string &purpose);
    zero_pages() = default;
    zero_pages(zero_pages &&other) noexcept;
    zero_pages &operator=(zero_pages &&other) noexcept;
    ~zero_pages();

    std::byte *data() const { return data_; }
    uint64_t bytes() const { return bytes_; }

private:
    std::byte *data_ = nullptr;
    uint64_t bytes_ = 0;
};

// What the system could give to programs without swapping; UINT64_MAX where it does not say.
uint64_t memory_available_bytes();

}  // namespace moorage::core

// memory_block.h - a large block of zeroed, page-aligned memory. It uses physical memory only where
// it was written or touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace moorage::core {

class memory_block {
public:
    // Fails if less memory than that is available. `purpose` names the memory in the error.
    static result<memory_block> create(uint64_t bytes, const std::string &purpose);
    memory_block() = default;
    memory_block(memory_block &&source) noexcept;
    memory_block &operator=(memory_block &&source) noexcept;
    ~memory_block();

    // Allocates all of its physical memory now, so that later writers do not wait for page faults.
    // Fails if the system does not have the memory. `purpose`: as in create().
    status touch(const std::string &purpose) const;

    std::byte *data() const { return data_; }
    uint64_t bytes() const { return bytes_; }

private:
    std::byte *data_ = nullptr;
    uint64_t bytes_ = 0;
};

// The memory that the system can give this process without swapping, within its container's limits.
// UINT64_MAX: not known.
uint64_t memory_available_bytes();

}  // namespace moorage::core

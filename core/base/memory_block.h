// memory_block.h - a large stretch of zeroed memory, aligned to pages, that takes room only where
// it has been written, or touched ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace moorage::core {

class memory_block {
public:
    // Refused where less memory than that is available; `purpose` is what the error calls it.
    static result<memory_block> create(uint64_t bytes, const std::string &purpose);
    memory_block() = default;
    memory_block(memory_block &&other) noexcept;
    memory_block &operator=(memory_block &&other) noexcept;
    ~memory_block();

    // Takes the room of all of it now, so that nobody waits for pages who writes there first. An
    // error where the system has it not after all; `purpose` as in create().
    status touch(const std::string &purpose) const;

    std::byte *data() const { return data_; }
    uint64_t bytes() const { return bytes_; }

private:
    std::byte *data_ = nullptr;
    uint64_t bytes_ = 0;
};

// What the system could give to this process without swapping, within the limits of its container;
// UINT64_MAX where it does not say.
uint64_t memory_available_bytes();

}  // namespace moorage::core

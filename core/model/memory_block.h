// memory_block.h - a large stretch of zeroed memory, aligned to pages, for weights that are not in
// a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace moorage::core {

class memory_block {
public:
    // Refused where the machine has less memory than that; `purpose` is for the message.
    static result<memory_block> create(uint64_t bytes, const std::string &purpose);
    memory_block() = default;
    memory_block(memory_block &&other) noexcept;
    memory_block &operator=(memory_block &&other) noexcept;
    ~memory_block();

    std::byte *data() const { return data_; }
    uint64_t bytes() const { return bytes_; }

private:
    std::byte *data_ = nullptr;
    uint64_t bytes_ = 0;
};

}  // namespace moorage::core

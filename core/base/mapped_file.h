// mapped_file.h - a file mapped read-only into memory, whose pages can be handed back to the
// kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/base/result.h"

namespace moorage::core {

// The file must not be cut short by others while it is mapped: the kernel would end the reader.
class mapped_file {
public:
    // Regular files only. An empty file maps to an empty span.
    static result<mapped_file> open(const std::filesystem::path &path);
    mapped_file() = default;
    mapped_file(mapped_file &&other) noexcept;
    mapped_file &operator=(mapped_file &&other) noexcept;
    ~mapped_file();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    // The whole memory pages within [begin, end) leave the resident set; a later read brings them
    // back. Safe while other threads read.
    void release(uint64_t begin, uint64_t end) const;

private:
    const std::byte *data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace moorage::core

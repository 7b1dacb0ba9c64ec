// disk_reader.h - reads stretches of mapped files past the page cache, many blocks at a time.
//
// What is larger than memory must not go through the page cache: it would push out what is in use,
// and a fault at a time is slow (llama.cpp#29130: 4.6 against 16.3 tokens/s). So the bytes that a
// mapping shows are read from its file directly (O_DIRECT, io_uring), block by block into buffers
// of the reader's own, and handed on while the next blocks are on their way; the mapping itself is
// not touched. Depth, not block size, is what a drive needs: 64 KiB one at a time 0.49 GB/s, 128 at
// a time 3.9; 256 KiB 5.9; 18 MiB 6.4 (0xBakeer/deepseek-v41-flash-spark#2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/result.h"

namespace moorage::core {

// In a mapped file (core/base/mapped_file.h).
struct disk_range {
    const std::byte *mapped = nullptr;
    uint64_t bytes = 0;
};

struct disk_reader_options {
    uint32_t block_bytes = 512 * 1024;  // a multiple of 4,096
    uint32_t depth = 32;                // blocks on their way at one time
};

// For one thread at a time.
class disk_reader {
public:
    // Where io_uring may not be used (containers forbid it) blocks are read one after another, and
    // where a file system has no direct reads they go through the page cache; the log says so.
    static result<std::unique_ptr<disk_reader>> create(const disk_reader_options &options = {});
    ~disk_reader();
    disk_reader(const disk_reader &) = delete;

    // Takes bytes of the range `number` from `offset` on; borrowed for the call.
    using taker =
        std::function<void(size_t number, uint64_t offset, std::span<const std::byte> bytes)>;
    // Reads all of them and hands every byte on once, in any order. An error names the file and the
    // place; then some may have been handed on.
    status read(std::span<const disk_range> ranges, const taker &take);

private:
    class files;
    class ring;
    explicit disk_reader(const disk_reader_options &options);

    disk_reader_options options_;
    std::unique_ptr<files> files_;
    std::unique_ptr<ring> ring_;
};

}  // namespace moorage::core

// disk_reader.h - reads parts of mapped files without the page cache, many blocks at a time.
//
// Data larger than memory must not go through the page cache: it would evict data in use, and
// reading by page faults is slow (llama.cpp#29130: 4.6 instead of 16.3 tokens/s). So the bytes of a
// mapping are read directly from its file (O_DIRECT, io_uring). Blocks go into the reader's own
// buffers and are passed on while the next blocks are being read. The mapping itself is not
// touched.
//
// A drive needs many blocks at a time more than large ones. 64 KiB blocks: 0.49 GB/s one at a time,
// 3.9 GB/s with 128 at a time. 256 KiB: 5.9 GB/s. 18 MiB: 6.4 GB/s
// (0xBakeer/deepseek-v41-flash-spark#2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/result.h"

namespace moorage::core {

// A range of a mapped file (core/base/mapped_file.h).
struct disk_range {
    const std::byte *mapped = nullptr;
    uint64_t bytes = 0;
};

struct disk_reader_options {
    uint32_t block_bytes = 512 * 1024;  // a multiple of 4,096
    uint32_t depth = 32;                // blocks that are read at the same time
};

// Used by one thread at a time.
class disk_reader {
public:
    // If io_uring is not allowed (containers forbid it), blocks are read one after another. If a
    // file system has no direct reads, they go through the page cache. Both are logged.
    static result<std::unique_ptr<disk_reader>> create(const disk_reader_options &options = {});
    ~disk_reader();
    disk_reader(const disk_reader &) = delete;

    // Takes bytes of range `number` from `offset` on. Borrowed for the call.
    using taker =
        std::function<void(size_t number, uint64_t offset, std::span<const std::byte> bytes)>;
    // Reads all ranges and passes every byte on once, in any order. An error names the file and the
    // place; then some bytes may have been passed on.
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

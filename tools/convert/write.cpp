// write.cpp - each thread writes about a megabyte at a time.
#include "tools/convert/write.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t stretch_bytes = 1 << 20;

}  // namespace

status write_tensor(const target_tensor &tensor, uint64_t offset, atomic_file &file,
                    thread_pool &pool) {
    const uint64_t rows = tensor.rows(), row_bytes = tensor.row_bytes(),
                   unit = tensor.rows_per_unit();
    const uint64_t wanted_rows = std::max<uint64_t>(stretch_bytes / row_bytes, 1);
    const uint64_t stretch = (wanted_rows + unit - 1) / unit * unit;
    std::mutex failing;
    std::optional<error> failure;
    const auto write = [&](uint32_t number) {
        const uint64_t first = number * stretch, count = std::min(stretch, rows - first);
        std::vector<std::byte> bytes(count * row_bytes);
        if (const status done = encode_rows(tensor, first, count, bytes); !done) {
            const std::lock_guard lock(failing);
            if (!failure) failure = done.failure();
            return;
        }
        file.write_at(offset + first * row_bytes, bytes);
    };
    pool.parallel_for(static_cast<uint32_t>((rows + stretch - 1) / stretch), write);
    if (failure) return *failure;
    return success();
}

status check_free_space(const std::filesystem::path &path, uint64_t bytes) {
    std::error_code code;
    const auto folder = std::filesystem::absolute(path, code).parent_path();
    const auto space = std::filesystem::space(folder, code);
    if (code || space.available >= bytes) return success();
    return error{format("{}: takes {}; {} has room for {}", path.string(),
                        human_bytes(static_cast<double>(bytes)), folder.string(),
                        human_bytes(static_cast<double>(space.available)))};
}

}  // namespace moorage::core

// write.cpp - each thread writes about a megabyte at a time.
#include "core/convert/write.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t stretch_bytes = 1 << 20;

}  // namespace

status write_tensor(const target_tensor &of, uint64_t offset, atomic_file &to, thread_pool &pool) {
    const uint64_t rows = of.rows(), row_bytes = of.row_bytes(), unit = of.unit_rows();
    const uint64_t wanted = std::max<uint64_t>(stretch_bytes / row_bytes, 1);
    const uint64_t stretch = (wanted + unit - 1) / unit * unit;
    std::mutex failing;
    std::optional<error> failure;
    const auto write = [&](uint32_t number) {
        const uint64_t first = number * stretch, count = std::min(stretch, rows - first);
        std::vector<std::byte> bytes(count * row_bytes);
        if (const status done = encode_rows(of, first, count, bytes); !done) {
            const std::lock_guard lock(failing);
            if (!failure) failure = done.failure();
            return;
        }
        to.write_at(offset + first * row_bytes, bytes);
    };
    pool.each(static_cast<uint32_t>((rows + stretch - 1) / stretch), write);
    if (failure) return *failure;
    return success();
}

status check_room(const std::filesystem::path &path, uint64_t bytes) {
    std::error_code code;
    const auto folder = std::filesystem::absolute(path, code).parent_path();
    const auto room = std::filesystem::space(folder, code);
    if (code || room.available >= bytes) return success();
    return error{format("{}: takes {}; {} has room for {}", path.string(),
                        human_bytes(static_cast<double>(bytes)), folder.string(),
                        human_bytes(static_cast<double>(room.available)))};
}

}  // namespace moorage::core

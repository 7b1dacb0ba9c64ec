// write.h - tensors written side by side into a file whose places are known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/atomic_file.h"
#include "core/base/result.h"
#include "core/convert/target.h"
#include "core/execute/cpu/thread_pool.h"

namespace moorage::core {

// A tensor's rows, encoded by all threads and written at `offset`.
status write_tensor(const target_tensor &of, uint64_t offset, atomic_file &to, thread_pool &pool);
// Refused where the disk of `path` has less room.
status check_room(const std::filesystem::path &path, uint64_t bytes);

}  // namespace moorage::core

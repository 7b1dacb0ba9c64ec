// write.h - writes tensors to known offsets of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/atomic_file.h"
#include "core/base/result.h"
#include "tools/convert/target.h"
#include "core/execute/thread_pool.h"

namespace moorage::core {

// Encodes a tensor's rows with all threads and writes them at `offset`.
status write_tensor(const target_tensor &tensor, uint64_t offset, atomic_file &file,
                    thread_pool &pool);
// Fails if the disk of `path` has less free space.
status check_free_space(const std::filesystem::path &path, uint64_t bytes);

}  // namespace moorage::core

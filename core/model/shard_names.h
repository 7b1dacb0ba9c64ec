// shard_names.h - finds the weights of a directory without model.safetensors and without an index.
//
//   auto names = numbered_shards("models/mine");  // "model-00001-of-00003.safetensors", ...
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// The shards of one model in the order of their numbers. Errors say what the directory has instead:
// only some shards, a GGUF file, weights in another format.
result<std::vector<std::string>> numbered_shards(const std::filesystem::path &directory);

}  // namespace moorage::core

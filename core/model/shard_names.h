// shard_names.h - the weights of a directory that has neither model.safetensors nor an index.
//
//   auto names = numbered_shards("models/mine");  // "model-00001-of-00003.safetensors", ...
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// The shards of one model in the order of their numbers. Errors say what lies there instead: some
// of the shards, a GGUF file, weights in another format.
result<std::vector<std::string>> numbered_shards(const std::filesystem::path &directory);

}  // namespace moorage::core

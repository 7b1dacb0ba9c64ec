// gguf_shape.h - the sizes of a model from the headers of its GGUF files alone.
//
//   auto shape = gguf_shape("Qwen3-30B-A3B-IQ3_S.gguf");   // or the first of a split model
//
// Counts tensors by their names, as llama.cpp gives them, so it holds for architectures and formats
// that nothing here computes with; a file may end behind its header. An expert has the mean bytes
// of all, since formats differ from layer to layer; layers of linear attention have no cached keys
// and values but a state, and figures of a layer are means over all layers.
#pragma once

#include <filesystem>

#include "core/base/result.h"
#include "core/config/hardware.h"

namespace moorage::core {

// The name is the file's. Errors name the file and the key or tensor that is missing or odd.
result<model_shape> gguf_shape(const std::filesystem::path &path);

}  // namespace moorage::core

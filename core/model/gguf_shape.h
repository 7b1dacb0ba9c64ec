// gguf_shape.h - the sizes of a model, read only from the headers of its GGUF files.
//
//   auto shape = gguf_shape("Qwen3-30B-A3B-IQ3_S.gguf");   // or the first of a split model
//
// Counts tensors by llama.cpp's names for them. So it also works for architectures and formats that
// nothing here computes with, and a file may end after its header. The bytes of an expert are the
// mean of all experts, because formats differ between layers. Layers of linear attention have a
// state in place of cached keys and values. Figures of a layer are means over all layers.
#pragma once

#include <filesystem>

#include "core/base/result.h"
#include "core/config/hardware.h"

namespace moorage::core {

// The model's name is the file's name. Errors name the file and the missing or wrong key or tensor.
result<model_shape> gguf_shape(const std::filesystem::path &path);

}  // namespace moorage::core

// gguf_model.h - opens a GGUF file, or the first of a split model, as a model.
#pragma once

#include <filesystem>
#include <memory>

#include "core/base/result.h"
#include "core/model/named_parts.h"

namespace moorage::core {

result<std::unique_ptr<model>> open_gguf_model(const std::filesystem::path &path,
                                               std::vector<named_part> *parts);

}  // namespace moorage::core

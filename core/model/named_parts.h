// named_parts.h - all parts of a model by name.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/weights.h"

namespace moorage::core {

enum class part_kind : uint8_t {
    matrix,
    vector,
    experts,  // of a layer; the name is its prefix, "model.layers.3."
    latent    // kv_b or its halves; the name is the prefix, "model.layers.3.self_attn."
};
// Has the name that publishers' files use. Borrowed from the model.
struct named_part {
    std::string name;
    matrix weights = {};
    std::span<const float> values = {};
    part_kind kind = weights ? part_kind::matrix : part_kind::vector;
};
// Opens a model and lists its parts in the order of binding.
result<std::unique_ptr<model>> open_model(const std::filesystem::path &directory,
                                          std::vector<named_part> &parts);

}  // namespace moorage::core

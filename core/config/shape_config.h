// shape_config.h - a model shape's keys besides its sizes, as the text of a config.json.
//
//   auto text = load_shape_config("mixtral_8x7b", ".");   // {"model_type": "mixtral", ...}
//
// The table [config] of a shape file holds those keys of the model's config.json that decide how it
// computes. Layers, hidden size, vocabulary, experts and top-k are added from the shape's sizes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/document.h"
#include "core/config/hardware.h"

namespace moorage::core {

// `name`: as for load_shape. Fails if the shape has no [config].
result<std::string> load_shape_config(const std::string &name, const std::filesystem::path &base);

// Requires: `table` is a table. Dates become texts.
std::string json_text_of(const node &table, const model_shape &shape);

}  // namespace moorage::core

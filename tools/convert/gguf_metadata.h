// gguf_metadata.h - writes a model's configuration as the keys of a GGUF file.
//
// Facts without a GGUF key are not checked here one by one. Instead the file is read back, and any
// difference (difference_of) is a fact that GGUF cannot express.
#pragma once

#include <string>

#include "tools/convert/gguf_writer.h"
#include "core/model/model_config.h"

namespace moorage::core {

// From the keys of config.json. The caller adds the tensors of rotation factors.
void put_config(const model_config &config, gguf_keys &keys);
// Divisors of the frequency of each rotated pair; empty: none, or other keys give them.
struct rotation_factors {
    std::vector<float> all_contexts, short_contexts, long_contexts;
};
rotation_factors rotation_factors_of(const model_config &config);

}  // namespace moorage::core

// gguf_metadata.h - a model's configuration as the keys of a GGUF file.
//
// What GGUF has no key for is not asked here one by one: the file is read back, and what reads
// otherwise (difference_of) is what it cannot say.
#pragma once

#include <string>

#include "core/convert/gguf_writer.h"
#include "core/model/model_config.h"

namespace moorage::core {

// Of config.json's words; tensors of rotations' factors are the caller's to add.
void put_config(const model_config &of, gguf_keys &keys);
// Factors by which the frequency of each rotated pair is divided; empty: none, or by other keys.
struct rotation_factors {
    std::vector<float> both, of_short, of_long;
};
rotation_factors rotation_factors_of(const model_config &of);

}  // namespace moorage::core

// gguf_metadata.h - a model's configuration as the keys of a GGUF file, and whether a file says the
// same as its source.
//
// What GGUF has no key for is not asked here one by one: the file is read back, and what reads
// otherwise is what it cannot say.
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

// "norm_topk_prob is 1 and would be 0": the first thing that two configurations do not agree on;
// empty: they compute the same.
std::string difference_of(const model_config &is, const model_config &made);

}  // namespace moorage::core

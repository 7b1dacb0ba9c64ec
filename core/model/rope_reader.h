// rope_reader.h - the rotary embedding's part of a config.json, in its old and new spellings.
#pragma once

#include "core/model/architectures.h"
#include "core/model/config_reader.h"
#include "core/model/model_config.h"

namespace moorage::core {

// Fills `config.rope`. Requires: `config` has its positions and its attention's sizes; for latent
// attention rope.dimensions is set. What is wrong goes to `reader`.
void read_rope(config_reader &reader, const architecture &row, model_config &config);

// Yarn's factor on the attention for a scale `mscale` (DeepSeek-V2): 0.1 mscale ln(factor) + 1.
double yarn_mscale(double factor, double mscale);

}  // namespace moorage::core

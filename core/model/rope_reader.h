// rope_reader.h - reads the rotary embedding's keys of a config.json, in old and new spellings.
#pragma once

#include "core/model/architectures.h"
#include "core/model/config_reader.h"
#include "core/model/model_config.h"

namespace moorage::core {

// Fills `config.rope`. Requires: `config` has its positions and its attention's sizes, and for
// latent attention rope.dimensions. Errors go to `reader`.
void read_rope(config_reader &reader, const architecture &arch, model_config &config);

// Yarn's factor on the attention for a scale `mscale` (DeepSeek-V2): 0.1 mscale ln(factor) + 1.
double yarn_mscale(double factor, double mscale);

}  // namespace moorage::core

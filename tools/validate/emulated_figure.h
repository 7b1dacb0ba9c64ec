// emulated_figure.h - the emulator's result for a setting: passes through its layers without a
// trace and without policies.
#pragma once

#include "tools/validate/setting.h"

namespace moorage::core {

// Milliseconds of a step of decode, or of a token of a prompt.
//
// The misses are drawn at random so that their number follows the hit rate, rounded. A pass of
// several tokens requests as many experts as independent tokens would, from those that the engine's
// prompts ever use. Equal settings give equal figures.
double emulate(const figure_setting &setting);

// The mean number of distinct experts that `tokens` tokens of `top_k` experts each request. Only
// `share` of the `experts` are ever used, all with equal probability. Requires: 1 <= top_k <=
// experts, 0 < share <= 1.
double distinct_experts(uint32_t experts, uint32_t top_k, uint32_t tokens, double share);

}  // namespace moorage::core

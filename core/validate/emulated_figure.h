// emulated_figure.h - what the emulator says of a setting: passes through its layers, without a
// trace and without policies.
#pragma once

#include "core/validate/setting.h"

namespace moorage::core {

// Milliseconds of a step of decode, or of a token of a prompt.
//
// Which requests for experts miss is drawn so that their number is what the hit rate says, rounded;
// how many experts a pass of several tokens asks for is what independent tokens would, of those
// that the engine's prompts ever use. Equal settings give equal figures.
double emulate(const figure_setting &of);

// How many of `experts` are asked for by `tokens` tokens of `top_k` each, in the mean, where only
// `share` of them are ever used, all alike. Requires: 1 <= top_k <= experts, 0 < share <= 1.
double distinct_experts(uint32_t experts, uint32_t top_k, uint32_t tokens, double share);

}  // namespace moorage::core

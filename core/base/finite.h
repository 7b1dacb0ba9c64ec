// finite.h - finds values that are infinite or no numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/safetensors.h"

namespace moorage::core {

// The place of the first value that is not finite; their count: there is none.
size_t first_odd(std::span<const float> values);
// The same of elements [begin, end) of a tensor; end: there is none. Requires: f16, bf16 or f32.
uint64_t first_odd(const tensor &of, uint64_t begin, uint64_t end);
float value_at(const tensor &of, uint64_t index);
// "tensor NAME holds nan at [3, 5]"; empty: all of it is finite, or it holds no such floats. The
// scales of mxfp4 blocks (NAME_scales) say with 255 that their blocks are no numbers.
std::string odd_value(const tensor &of);

}  // namespace moorage::core

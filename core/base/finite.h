// finite.h - finds values that are infinite or NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/safetensors.h"

namespace moorage::core {

// The index of the first value that is not finite; values.size() if there is none.
size_t first_non_finite(std::span<const float> values);
// As above for elements [begin, end) of a tensor; `end` if there is none. Requires: f16, bf16 or
// f32.
uint64_t first_non_finite(const tensor &values, uint64_t begin, uint64_t end);
float value_at(const tensor &values, uint64_t index);
// "tensor NAME holds nan at [3, 5]". Empty: every value is finite, or the tensor holds no such
// floats. In the scales of mxfp4 blocks (NAME_scales), 255 marks a block of NaN.
std::string non_finite_text(const tensor &values);

}  // namespace moorage::core

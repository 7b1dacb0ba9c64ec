// weight_values.h - what stored weights stand for: each format's definition, one value at a time.
//
//   float one = weight_at(experts[0].down, row, column);
//
// Slow; kernels have readers of their own, which are held against these.
#pragma once

#include <cstdint>
#include <span>

#include "core/model/weights.h"

namespace moorage::core {

float weight_at(const matrix &of, uint32_t row, uint32_t column);
// A whole row. Requires: out.size() == of.columns.
void read_row(const matrix &of, uint32_t row, std::span<float> out);
// An 8-bit float of four bits of exponent and three of fraction; 0x7f and 0xff are no numbers.
float float_of_e4m3(uint8_t code);

}  // namespace moorage::core

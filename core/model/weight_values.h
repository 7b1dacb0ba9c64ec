// weight_values.h - the meaning of stored weights: each format's definition, one value at a time.
//
//   float weight = weight_at(experts[0].down, row, column);
//
// This is slow. Kernels have their own readers, which are compared with this one.
#pragma once

#include <cstdint>
#include <span>

#include "core/model/weights.h"

namespace moorage::core {

float weight_at(const matrix &weights, uint32_t row, uint32_t column);
// Reads a whole row. Requires: values.size() == weights.columns.
void read_row(const matrix &weights, uint32_t row, std::span<float> values);
// Decodes an 8-bit float with four exponent bits and three fraction bits; 0x7f and 0xff are NaN.
float float_of_e4m3(uint8_t code);

}  // namespace moorage::core

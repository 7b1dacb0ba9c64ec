// quantise.h - turns floats into blocks of a format: the codes and scales of a row.
//
//   std::vector<std::byte> packed(bytes_of_columns(weight_type::q4_k, row.size()));
//   quantise_row(weight_type::q4_k, row, packed);
//
// Formats with one scale per block use the scale of the greatest value and the nearest codes,
// exactly as ggml's own files do. Formats with scales of scales (K-quants, IQ4) search for the
// scales with the least squared error. They try several candidates per group, fit each by least
// squares, and fit the rounded scales once more. Float arithmetic in a fixed order gives the same
// bytes on every machine and for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/weight_types.h"

namespace moorage::core {

// Can the format be written? True for those of GGUF files.
bool can_quantise(weight_type type);
// Requires: can_quantise(type), whole blocks, finite values, target.size() ==
// bytes_of_columns(type, row.size()). A scale that is too large for a file becomes 65504.
void quantise_row(weight_type type, std::span<const float> row, std::span<std::byte> target);

// The nearest 8-bit float, ties to even. Values above 448 become 448.
uint8_t e4m3_of_float(float value);
// The scale of a block of fp8: the greatest magnitude becomes the greatest code.
float fp8_scale(float magnitude);

}  // namespace moorage::core

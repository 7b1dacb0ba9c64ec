// quantise.h - floats to blocks of a format: the codes and scales of a row.
//
//   std::vector<std::byte> packed(bytes_of_columns(weight_type::q4_k, row.size()));
//   quantise_row(weight_type::q4_k, row, packed);
//
// Formats with one scale a block take the nearest code at the scale that the greatest value gives,
// as ggml's own files have it, to the bit. Formats with scales of scales (K-quants, IQ4) look for
// the scales with the least squared error: a row of candidates a group, each fitted by least
// squares, then the rounded scales fitted once more. Plain float arithmetic in one order: the same
// bytes on every machine and for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/weight_types.h"

namespace moorage::core {

// Whether the format can be written: those of GGUF files.
bool can_quantise(weight_type type);
// Requires: can_quantise(type), whole blocks, finite values, out.size() == bytes_of_columns(type,
// row.size()). A scale that is too large for a file is cut to 65504.
void quantise_row(weight_type type, std::span<const float> row, std::span<std::byte> out);

// The nearest 8-bit float, ties to even; above 448 it is 448.
uint8_t e4m3_of_float(float value);
// Of a block of fp8: the greatest magnitude becomes the greatest code.
float fp8_scale(float magnitude);

}  // namespace moorage::core

// quantise_parts.h - shared by the writers of blocks: numbers and codes to bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/half.h"
#include "core/model/weight_types.h"

namespace moorage::core {

template <class Value>
void put(std::byte *target, Value value) {
    std::memcpy(target, &value, sizeof value);
}
// The nearest scale that a file can hold.
inline float as_half(float value) {
    return float_of_half(half_of_float(std::clamp(value, -65504.0F, 65504.0F)));
}
inline void put_half(std::byte *target, float value) { put(target, half_of_float(as_half(value))); }

// Writes 32 codes of four bits, or of five: then a word of the fifth bits comes first.
template <int bits, class Code>
void put_codes(std::span<const float> x, std::byte *target, Code &&code_of) {
    std::array<std::byte, 16> low{};
    uint32_t fifth = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const uint32_t code = code_of(x[i]);
        low[i % 16] |= std::byte((code & 15) << i / 16 * 4);
        fifth |= (code >> 4) << i;
    }
    if constexpr (bits == 5) {
        put(target, fifth);
        target += sizeof fifth;
    }
    std::memcpy(target, low.data(), low.size());
}

// The encoder of a format whose scales are codes themselves (quantise_nested.cpp); null: no such
// format.
void (*nested_encoder_of(weight_type type))(std::span<const float>, std::byte *);

}  // namespace moorage::core

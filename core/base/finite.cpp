// finite.cpp - a fast pass that looks for any exponent of all ones, then a slow one that finds it.
#include "core/base/finite.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <vector>

#include "core/base/half.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

template <class Bits>
Bits read(const std::byte *data, uint64_t index) {
    Bits bits;
    std::memcpy(&bits, data + index * sizeof(Bits), sizeof(Bits));
    return bits;
}

// A value is not finite if all bits of `odd` are set in it.
template <class Bits>
uint64_t first_with_bits(const std::byte *data, uint64_t begin, uint64_t end, Bits odd) {
    constexpr uint64_t chunk = 16 * 1024;
    for (uint64_t chunk_begin = begin; chunk_begin < end; chunk_begin += chunk) {
        const uint64_t chunk_end = std::min(chunk_begin + chunk, end);
        uint32_t found = 0;
        for (uint64_t i = chunk_begin; i < chunk_end; ++i)
            found |= (read<Bits>(data, i) & odd) == odd ? 1u : 0u;
        for (uint64_t i = chunk_begin; found != 0 && i < chunk_end; ++i)
            if ((read<Bits>(data, i) & odd) == odd) return i;
    }
    return end;
}

constexpr uint32_t odd_float = 0x7f800000u;
constexpr uint16_t odd_half = 0x7c00u, odd_bfloat = 0x7f80u;

bool is_float(dtype type) {
    return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16;
}

std::string index_text(const tensor &values, uint64_t index) {
    std::vector<uint64_t> position(values.shape.size());
    for (size_t axis = position.size(); axis-- > 0; index /= values.shape[axis])
        position[axis] = index % values.shape[axis];
    return shape_text(position);
}

}  // namespace

size_t first_non_finite(std::span<const float> values) {
    return first_with_bits<uint32_t>(std::as_bytes(values).data(), 0, values.size(), odd_float);
}

uint64_t first_non_finite(const tensor &values, uint64_t begin, uint64_t end) {
    assert(is_float(values.type) && begin <= end && end <= values.elements());
    const std::byte *data = values.bytes.data();
    if (values.type == dtype::f32) return first_with_bits<uint32_t>(data, begin, end, odd_float);
    return first_with_bits<uint16_t>(data, begin, end,
                                     values.type == dtype::f16 ? odd_half : odd_bfloat);
}

float value_at(const tensor &values, uint64_t index) {
    assert(is_float(values.type));
    const std::byte *data = values.bytes.data();
    if (values.type == dtype::f32) return std::bit_cast<float>(read<uint32_t>(data, index));
    const auto bits = read<uint16_t>(data, index);
    if (values.type == dtype::f16) return float_of_half(bits);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

std::string non_finite_text(const tensor &values) {
    const uint64_t count = values.elements();
    if (is_float(values.type)) {
        const uint64_t index = first_non_finite(values, 0, count);
        if (index == count) return {};
        return format("tensor {} holds {} at {}", values.name, value_at(values, index),
                      index_text(values, index));
    }
    if (values.type != dtype::u8 || !values.name.ends_with("_scales")) return {};
    const auto scale = std::ranges::find(values.bytes, std::byte{255});
    if (scale == values.bytes.end()) return {};
    return format("tensor {} holds 255, the scale of a block that is no number, at {}", values.name,
                  index_text(values, static_cast<uint64_t>(scale - values.bytes.begin())));
}

}  // namespace moorage::core

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
uint64_t first_with(const std::byte *data, uint64_t begin, uint64_t end, Bits odd) {
    constexpr uint64_t chunk = 16 * 1024;
    for (uint64_t at = begin; at < end; at += chunk) {
        const uint64_t stop = std::min(at + chunk, end);
        uint32_t found = 0;
        for (uint64_t i = at; i < stop; ++i) found |= (read<Bits>(data, i) & odd) == odd ? 1u : 0u;
        for (uint64_t i = at; found != 0 && i < stop; ++i)
            if ((read<Bits>(data, i) & odd) == odd) return i;
    }
    return end;
}

constexpr uint32_t odd_float = 0x7f800000u;
constexpr uint16_t odd_half = 0x7c00u, odd_bfloat = 0x7f80u;

bool is_float(dtype type) {
    return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16;
}

std::string index_text(const tensor &of, uint64_t index) {
    std::vector<uint64_t> at(of.shape.size());
    for (size_t axis = at.size(); axis-- > 0; index /= of.shape[axis])
        at[axis] = index % of.shape[axis];
    return shape_text(at);
}

}  // namespace

size_t first_odd(std::span<const float> values) {
    return first_with<uint32_t>(std::as_bytes(values).data(), 0, values.size(), odd_float);
}

uint64_t first_odd(const tensor &of, uint64_t begin, uint64_t end) {
    assert(is_float(of.type) && begin <= end && end <= of.elements());
    const std::byte *data = of.bytes.data();
    if (of.type == dtype::f32) return first_with<uint32_t>(data, begin, end, odd_float);
    return first_with<uint16_t>(data, begin, end, of.type == dtype::f16 ? odd_half : odd_bfloat);
}

float value_at(const tensor &of, uint64_t index) {
    assert(is_float(of.type));
    const std::byte *data = of.bytes.data();
    if (of.type == dtype::f32) return std::bit_cast<float>(read<uint32_t>(data, index));
    const auto bits = read<uint16_t>(data, index);
    if (of.type == dtype::f16) return float_of_half(bits);
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

std::string odd_value(const tensor &of) {
    const uint64_t count = of.elements();
    if (is_float(of.type)) {
        const uint64_t at = first_odd(of, 0, count);
        if (at == count) return {};
        return format("tensor {} holds {} at {}", of.name, value_at(of, at), index_text(of, at));
    }
    if (of.type != dtype::u8 || !of.name.ends_with("_scales")) return {};
    const auto scale = std::ranges::find(of.bytes, std::byte{255});
    if (scale == of.bytes.end()) return {};
    return format("tensor {} holds 255, the scale of a block that is no number, at {}", of.name,
                  index_text(of, static_cast<uint64_t>(scale - of.bytes.begin())));
}

}  // namespace moorage::core

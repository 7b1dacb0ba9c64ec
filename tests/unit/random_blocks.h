// random_blocks.h - blocks of random codes whose scales are of moderate size, for every format
// that holds its values in groups.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <utility>

#include "core/model/weights.h"

namespace moorage::core {

inline float small_scale(std::mt19937_64 &random) {
    return static_cast<float>(1 + random() % 1000) * (random() % 2 ? 2e-5F : -2e-5F);
}

// The places of binary16 numbers in blocks.
struct half_place {
    weight_type type;
    uint32_t offset;
};
inline constexpr half_place half_places[] = {
    {weight_type::q8_0, 0},   {weight_type::q4_0, 0},  {weight_type::q4_1, 0},
    {weight_type::q4_1, 2},   {weight_type::q5_0, 0},  {weight_type::q5_1, 0},
    {weight_type::q5_1, 2},   {weight_type::q2_k, 80}, {weight_type::q2_k, 82},
    {weight_type::q3_k, 108}, {weight_type::q4_k, 0},  {weight_type::q4_k, 2},
    {weight_type::q5_k, 0},   {weight_type::q5_k, 2},  {weight_type::q6_k, 208},
    {weight_type::iq4_nl, 0}, {weight_type::iq4_xs, 0}};

// Puts such scales into a block of random bytes.
inline void moderate_scales(std::mt19937_64 &random, weight_type type, std::byte *block) {
    for (const half_place &place : half_places) {
        if (place.type != type) continue;
        const auto half = static_cast<uint16_t>((random() & 0x83ff) | (3 + random() % 6) << 10);
        std::memcpy(block + place.offset, &half, sizeof half);
    }
    if (type == weight_type::mxfp4_gguf) *block = std::byte(118 + random() % 8);
    const float scale = small_scale(random);
    if (type == weight_type::int4_32 || type == weight_type::int4_64 ||
        type == weight_type::int4_128) {
        std::memcpy(block, &scale, sizeof scale);
        block[4] = std::byte(random() % 17);
    }
    // Two codes of fp8 are NaN. Its blocks may be cut.
    if (type == weight_type::fp8 && (*block & std::byte{0x7f}) == std::byte{0x7f})
        *block = std::byte{1};
}
// Every block of a row of random bytes.
inline void moderate_row(std::mt19937_64 &random, weight_type type, std::span<std::byte> row) {
    const size_t step = type == weight_type::fp8 ? 1 : format_of(type).bytes;
    for (size_t offset = 0; offset < row.size(); offset += step)
        moderate_scales(random, type, &row[offset]);
}
// Scales outside the blocks; for int4_ordered those of groups, with their zero points.
inline void moderate_scales_apart(std::mt19937_64 &random, weight_type type,
                                  std::span<float> scales) {
    const bool ordered = type == weight_type::int4_ordered;
    for (size_t i = 0; i < scales.size(); ++i)
        scales[i] = ordered && i % 2 ? static_cast<float>(random() % 17) : small_scale(random);
}

}  // namespace moorage::core

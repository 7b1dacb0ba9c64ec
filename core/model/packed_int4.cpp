// packed_int4.cpp - the places of codes, scales and zero points in each packing.
#include "core/model/packed_int4.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "core/base/finite.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// The four bits of a word that hold output o of eight. autoawq packs in the order 0 2 4 6 1 3 5 7.
constexpr std::array<uint32_t, 8> awq_places = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t nibble(const tensor &tensor, uint64_t word, uint32_t place) {
    uint32_t value;
    std::memcpy(&value, tensor.bytes.data() + word * sizeof value, sizeof value);
    return value >> 4 * place & 15;
}

uint32_t code_at(const packed_int4 &packed, uint32_t row, uint32_t column) {
    switch (packed.kind) {
        case packing_kind::gptq:  // [columns / 8, rows]
            return nibble(*packed.codes, uint64_t{column / 8} * packed.rows + row, column % 8);
        case packing_kind::awq:  // [columns, rows / 8]
            return nibble(*packed.codes, uint64_t{column} * (packed.rows / 8) + row / 8,
                          awq_places[row % 8]);
        default:  // [rows, columns / 8]
            return nibble(*packed.codes, uint64_t{row} * (packed.columns / 8) + column / 8,
                          column % 8);
    }
}

uint32_t zero_at(const packed_int4 &packed, uint32_t row, uint32_t group) {
    if (packed.zeros == nullptr) return 8;
    const uint64_t words = packed.rows / 8;
    switch (packed.kind) {
        case packing_kind::gptq:  // [groups, rows / 8]
            return nibble(*packed.zeros, group * words + row / 8, row % 8) +
                   (packed.zeros_less_one ? 1 : 0);
        case packing_kind::awq:
            return nibble(*packed.zeros, group * words + row / 8, awq_places[row % 8]);
        default:  // [rows / 8, groups]
            return nibble(*packed.zeros, uint64_t{row / 8} * packed.groups + group, row % 8);
    }
}

float scale_at(const packed_int4 &packed, uint32_t row, uint32_t group) {
    const bool by_row = packed.kind == packing_kind::compressed;  // [rows, groups]
    return value_at(*packed.scales, by_row ? uint64_t{row} * packed.groups + group
                                           : uint64_t{group} * packed.rows + row);
}

// Writes 32 columns as nibbles in 16 bytes, as in q4_0.
void put_codes(const packed_int4 &packed, uint32_t row, uint32_t first, uint32_t count,
               std::byte *target) {
    for (uint32_t i = 0; i < count; ++i) {
        std::byte &code_byte = target[i / 32 * 16 + i % 16];
        const auto code = static_cast<std::byte>(code_at(packed, row, first + i));
        code_byte = i % 32 < 16 ? code : code_byte | code << 4;
    }
}

void pack_blocks(const packed_int4 &packed, const matrix &weights, std::byte *target) {
    const weight_format &format = format_of(weights.type);
    const uint32_t width = packed.group == 0 ? packed.columns : packed.group;
    for (uint32_t row = 0; row < packed.rows; ++row)
        for (uint32_t first = 0; first < packed.columns; first += format.block) {
            const float scale = scale_at(packed, row, first / width);
            std::memcpy(target, &scale, sizeof scale);
            target[4] = static_cast<std::byte>(zero_at(packed, row, first / width));
            put_codes(packed, row, first, format.block, target + 5);
            target += format.bytes;
        }
}

void pack_ordered(const packed_int4 &packed, std::byte *data, std::byte *scales) {
    for (uint32_t row = 0; row < packed.rows; ++row, data += packed.columns / 2) {
        put_codes(packed, row, 0, packed.columns, data);
        for (uint32_t group = 0; group < packed.groups; ++group, scales += 2 * sizeof(float)) {
            const float scale_and_zero[] = {scale_at(packed, row, group),
                                            static_cast<float>(zero_at(packed, row, group))};
            std::memcpy(scales, scale_and_zero, sizeof scale_and_zero);
        }
    }
}

}  // namespace

result<int4_layout> layout_of(const packed_int4 &packed) {
    if (packed.columns % group_values != 0)
        return error{format("has rows of {} four-bit values; multiples of {} are supported",
                            packed.columns, group_values)};
    int4_layout layout;
    const uint32_t width = packed.group == 0 ? packed.columns : packed.group;
    const bool ordered = !packed.group_of.empty();
    for (const weight_type type :
         {weight_type::int4_128, weight_type::int4_64, weight_type::int4_32}) {
        const uint32_t block = format_of(type).block;
        if (ordered || width % block != 0 || packed.columns % block != 0) continue;
        layout.type = type;
        layout.data_bytes = packed.rows * bytes_of_columns(type, packed.columns);
        return layout;
    }
    if (!ordered)
        return error{
            format("has groups of {} columns; multiples of {} are supported", width, group_values)};
    layout.data_bytes = uint64_t{packed.rows} * (packed.columns / 2);
    layout.scale_bytes = uint64_t{packed.rows} * packed.groups * 2 * sizeof(float);
    return layout;
}

matrix pack(const packed_int4 &packed, const int4_layout &layout, std::byte *target,
            const uint32_t *group_of) {
    matrix weights = packed_matrix(layout.type, packed.rows, packed.columns, target);
    if (layout.type != weight_type::int4_ordered) {
        pack_blocks(packed, weights, target);
        return weights;
    }
    assert(layout.data_bytes % sizeof(float) == 0);
    weights.scales = target + layout.data_bytes;
    weights.scale_row_bytes = packed.groups * 2 * sizeof(float);
    weights.group_of = group_of;
    pack_ordered(packed, target, target + layout.data_bytes);
    return weights;
}

}  // namespace moorage::core

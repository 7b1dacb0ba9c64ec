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

uint32_t nibble(const tensor &of, uint64_t word, uint32_t place) {
    uint32_t value;
    std::memcpy(&value, of.bytes.data() + word * sizeof value, sizeof value);
    return value >> 4 * place & 15;
}

uint32_t code_at(const packed_int4 &of, uint32_t row, uint32_t column) {
    switch (of.kind) {
        case packing_kind::gptq:  // [columns / 8, rows]
            return nibble(*of.codes, uint64_t{column / 8} * of.rows + row, column % 8);
        case packing_kind::awq:  // [columns, rows / 8]
            return nibble(*of.codes, uint64_t{column} * (of.rows / 8) + row / 8,
                          awq_places[row % 8]);
        default:  // [rows, columns / 8]
            return nibble(*of.codes, uint64_t{row} * (of.columns / 8) + column / 8, column % 8);
    }
}

uint32_t zero_at(const packed_int4 &of, uint32_t row, uint32_t group) {
    if (of.zeros == nullptr) return 8;
    const uint64_t words = of.rows / 8;
    switch (of.kind) {
        case packing_kind::gptq:  // [groups, rows / 8]
            return nibble(*of.zeros, group * words + row / 8, row % 8) +
                   (of.zeros_less_one ? 1 : 0);
        case packing_kind::awq:
            return nibble(*of.zeros, group * words + row / 8, awq_places[row % 8]);
        default:  // [rows / 8, groups]
            return nibble(*of.zeros, uint64_t{row / 8} * of.groups + group, row % 8);
    }
}

float scale_at(const packed_int4 &of, uint32_t row, uint32_t group) {
    const bool by_row = of.kind == packing_kind::compressed;  // [rows, groups]
    return value_at(*of.scales,
                    by_row ? uint64_t{row} * of.groups + group : uint64_t{group} * of.rows + row);
}

// Writes 32 columns as nibbles in 16 bytes, as in q4_0.
void put_codes(const packed_int4 &from, uint32_t row, uint32_t first, uint32_t count,
               std::byte *target) {
    for (uint32_t i = 0; i < count; ++i) {
        std::byte &at = target[i / 32 * 16 + i % 16];
        const auto code = static_cast<std::byte>(code_at(from, row, first + i));
        at = i % 32 < 16 ? code : at | code << 4;
    }
}

void pack_blocks(const packed_int4 &from, const matrix &to, std::byte *target) {
    const weight_format &format = format_of(to.type);
    const uint32_t width = from.group == 0 ? from.columns : from.group;
    for (uint32_t row = 0; row < from.rows; ++row)
        for (uint32_t first = 0; first < from.columns; first += format.block) {
            const float scale = scale_at(from, row, first / width);
            std::memcpy(target, &scale, sizeof scale);
            target[4] = static_cast<std::byte>(zero_at(from, row, first / width));
            put_codes(from, row, first, format.block, target + 5);
            target += format.bytes;
        }
}

void pack_ordered(const packed_int4 &from, std::byte *data, std::byte *scales) {
    for (uint32_t row = 0; row < from.rows; ++row, data += from.columns / 2) {
        put_codes(from, row, 0, from.columns, data);
        for (uint32_t group = 0; group < from.groups; ++group, scales += 2 * sizeof(float)) {
            const float both[] = {scale_at(from, row, group),
                                  static_cast<float>(zero_at(from, row, group))};
            std::memcpy(scales, both, sizeof both);
        }
    }
}

}  // namespace

result<int4_layout> layout_of(const packed_int4 &from) {
    if (from.columns % group_values != 0)
        return error{format("has rows of {} four-bit values; multiples of {} are supported",
                            from.columns, group_values)};
    int4_layout made;
    const uint32_t width = from.group == 0 ? from.columns : from.group;
    const bool ordered = !from.group_of.empty();
    for (const weight_type type :
         {weight_type::int4_128, weight_type::int4_64, weight_type::int4_32}) {
        const uint32_t block = format_of(type).block;
        if (ordered || width % block != 0 || from.columns % block != 0) continue;
        made.type = type;
        made.data_bytes = from.rows * bytes_of_columns(type, from.columns);
        return made;
    }
    if (!ordered)
        return error{
            format("has groups of {} columns; multiples of {} are supported", width, group_values)};
    made.data_bytes = uint64_t{from.rows} * (from.columns / 2);
    made.scale_bytes = uint64_t{from.rows} * from.groups * 2 * sizeof(float);
    return made;
}

matrix pack(const packed_int4 &from, const int4_layout &layout, std::byte *target,
            const uint32_t *group_of) {
    matrix made = packed_matrix(layout.type, from.rows, from.columns, target);
    if (layout.type != weight_type::int4_ordered) {
        pack_blocks(from, made, target);
        return made;
    }
    assert(layout.data_bytes % sizeof(float) == 0);
    made.scales = target + layout.data_bytes;
    made.scale_row_bytes = from.groups * 2 * sizeof(float);
    made.group_of = group_of;
    pack_ordered(from, target, target + layout.data_bytes);
    return made;
}

}  // namespace moorage::core

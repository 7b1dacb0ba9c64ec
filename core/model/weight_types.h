// weight_types.h - the formats in which weights are stored, one row each.
//
// A row of a matrix is one block of values after the other; a format that keeps the scales of its
// blocks apart has them in matrix::scales. Sizes, segments, copies and what is measured follow from
// the table. Beside its row a format needs a reader for each kind of device, which makes floats of
// its blocks: core/execute/cpu/kernels_vector-inl.h, core/execute/gpu/arithmetic/weights_read.h.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

namespace moorage::core {

enum class weight_type : uint8_t { bf16, f16, f32, mxfp4 };

// What stands for a value where a GPU's matrix units take bf16 numbers.
enum class unit_form : uint8_t {
    itself,
    one,  // equal to it
    two   // whose sum is nearly it
};

struct weight_format {
    weight_type type;
    const char *name;
    uint32_t block;        // values of a block; 1: single values, which files call by the same name
    uint32_t bytes;        // of the block
    uint32_t scale_bytes;  // of each block, apart from it; 0: none, or in the block
    unit_form unit;
};
// In the order of weight_type.
inline constexpr weight_format weight_formats[] = {
    {weight_type::bf16, "bf16", 1, 2, 0, unit_form::itself},
    {weight_type::f16, "f16", 1, 2, 0, unit_form::two},
    {weight_type::f32, "f32", 1, 4, 0, unit_form::two},
    // Two 4-bit floats a byte, the low half first; a scale is one E8M0 byte.
    {weight_type::mxfp4, "mxfp4", 32, 16, 1, unit_form::one},
};
inline constexpr size_t weight_format_count = std::size(weight_formats);
// What random models are made of, and what is measured most.
inline constexpr weight_type usual_weights = weight_formats[0].type;

constexpr const weight_format &format_of(weight_type type) {
    return weight_formats[static_cast<size_t>(type)];
}
static_assert([] {
    for (size_t i = 0; i < weight_format_count; ++i)
        if (weight_formats[i].type != static_cast<weight_type>(i)) return false;
    return true;
}());
inline const char *name_of(weight_type type) { return format_of(type).name; }  // "bf16"

// Bytes of `columns` values of a row, without scales. Requires: whole blocks.
constexpr uint64_t bytes_of_columns(weight_type type, uint64_t columns) {
    assert(columns % format_of(type).block == 0);
    return columns / format_of(type).block * format_of(type).bytes;
}
// Bytes of their scales, where those lie apart.
constexpr uint64_t scale_bytes_of(weight_type type, uint64_t columns) {
    return columns / format_of(type).block * format_of(type).scale_bytes;
}

// Calls body with the type as a constant.
template <class Body>
void with_type(weight_type type, Body &&body) {
    const auto one_of = [&]<size_t... index>(std::index_sequence<index...>) {
        ((type == weight_formats[index].type
              ? body(std::integral_constant<weight_type, weight_formats[index].type>{})
              : void()),
         ...);
    };
    one_of(std::make_index_sequence<weight_format_count>());
}

}  // namespace moorage::core

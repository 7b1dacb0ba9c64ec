// weight_types.h - the formats in which weights are stored, one row each.
//
// A row of a matrix is one block of values after the other; a format that keeps the scales of its
// blocks apart has them in matrix::scales. Sizes, segments, copies and what is measured follow from
// the table. Beside its row a format needs its definition (weight_values.cpp) and a reader, which
// makes floats of its blocks: core/execute/cpu/kernels_vector-inl.h, or for groups
// kernels_vector_groups.cpp; core/execute/gpu/arithmetic/weight_readers.h.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

namespace moorage::core {

enum class weight_type : uint8_t {
    bf16,
    f16,
    f32,
    mxfp4,
    q8_0,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    iq4_nl,
    iq4_xs,
    mxfp4_gguf,
    fp8,
    int4_32,
    int4_64,
    int4_128,
    int4_ordered
};

// What stands for a value where a GPU's matrix units take bf16 numbers.
enum class unit_form : uint8_t {
    itself,
    one,  // equal to it
    two   // whose sum is nearly it
};
// How values lie in memory, and so which loops read them.
enum class value_order : uint8_t {
    single,  // alone; files call the format by the same name
    pairs,   // neighbours share a byte, scales lie apart
    groups   // whatever the block, 32 values are read at a time
};

inline constexpr uint32_t no_gguf_id = UINT32_MAX, group_values = 32;

struct weight_format {
    weight_type type;
    const char *name;
    uint32_t block;        // values of a block
    uint32_t bytes;        // of the block
    uint32_t scale_bytes;  // of each block, apart from it; 0: none, or in the block
    unit_form unit;
    value_order order;
    uint32_t gguf_id = no_gguf_id;  // of the type in GGUF files
    uint32_t scale_rows = 1;        // rows that share the scales that lie apart
};
// In the order of weight_type. Those of GGUF are laid out as weight_values.cpp says.
inline constexpr weight_format weight_formats[] = {
    {weight_type::bf16, "bf16", 1, 2, 0, unit_form::itself, value_order::single, 30},
    {weight_type::f16, "f16", 1, 2, 0, unit_form::two, value_order::single, 1},
    {weight_type::f32, "f32", 1, 4, 0, unit_form::two, value_order::single, 0},
    // Two 4-bit floats a byte, the low half first; a scale is one E8M0 byte.
    {weight_type::mxfp4, "mxfp4", 32, 16, 1, unit_form::one, value_order::pairs},
    {weight_type::q8_0, "q8_0", 32, 34, 0, unit_form::two, value_order::groups, 8},
    {weight_type::q4_0, "q4_0", 32, 18, 0, unit_form::two, value_order::groups, 2},
    {weight_type::q4_1, "q4_1", 32, 20, 0, unit_form::two, value_order::groups, 3},
    {weight_type::q5_0, "q5_0", 32, 22, 0, unit_form::two, value_order::groups, 6},
    {weight_type::q5_1, "q5_1", 32, 24, 0, unit_form::two, value_order::groups, 7},
    {weight_type::q2_k, "q2_k", 256, 84, 0, unit_form::two, value_order::groups, 10},
    {weight_type::q3_k, "q3_k", 256, 110, 0, unit_form::two, value_order::groups, 11},
    {weight_type::q4_k, "q4_k", 256, 144, 0, unit_form::two, value_order::groups, 12},
    {weight_type::q5_k, "q5_k", 256, 176, 0, unit_form::two, value_order::groups, 13},
    {weight_type::q6_k, "q6_k", 256, 210, 0, unit_form::two, value_order::groups, 14},
    {weight_type::iq4_nl, "iq4_nl", 32, 18, 0, unit_form::two, value_order::groups, 20},
    {weight_type::iq4_xs, "iq4_xs", 256, 136, 0, unit_form::two, value_order::groups, 23},
    // The same numbers as mxfp4, in another order and with the scale in the block.
    {weight_type::mxfp4_gguf, "mxfp4", 32, 17, 0, unit_form::one, value_order::groups, 39},
    // E4M3; a float32 scales 128 columns of 128 rows.
    {weight_type::fp8, "fp8", 128, 128, 4, unit_form::two, value_order::groups, no_gguf_id, 128},
    // Four bits in groups that share a scale and a zero point, however a checkpoint packs them:
    // a float32, the zero point in a byte, and nibbles as in q4_0.
    {weight_type::int4_32, "int4", 32, 21, 0, unit_form::two, value_order::groups},
    {weight_type::int4_64, "int4", 64, 37, 0, unit_form::two, value_order::groups},
    {weight_type::int4_128, "int4", 128, 69, 0, unit_form::two, value_order::groups},
    // The same where each column may be of any group (matrix::group_of): nibbles in the row; apart
    // from it a scale and a zero point for each group, two float32.
    {weight_type::int4_ordered, "int4", 32, 16, 8, unit_form::two, value_order::groups},
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

// Whether the CPU's kernels read values of the type 32 at a time, and not alone or in pairs.
constexpr bool in_groups(weight_type type) { return format_of(type).order == value_order::groups; }
constexpr bool not_in_groups(weight_type type) { return !in_groups(type); }
constexpr bool any_type(weight_type) { return true; }

// Bytes of `columns` values of a row, without scales. Requires: whole blocks; of fp8, which cuts
// blocks at the end of a row, whole values.
constexpr uint64_t bytes_of_columns(weight_type type, uint64_t columns) {
    const weight_format &format = format_of(type);
    assert(columns % format.block == 0 || format.bytes == format.block);
    return columns * format.bytes / format.block;
}
// Bytes of their scales, where those lie apart: of one row of them (weight_format::scale_rows).
// Of int4_ordered a matrix knows them (scale_bytes_of in weights.h).
constexpr uint64_t scale_bytes_of(weight_type type, uint64_t columns) {
    const weight_format &format = format_of(type);
    return (columns + format.block - 1) / format.block * format.scale_bytes;
}

// Calls body with the type as a constant, where `allowed` holds for it.
template <bool (*allowed)(weight_type), class Body>
void with_type_of(weight_type type, Body &&body) {
    const auto call = [&]<size_t index>() {
        constexpr weight_type one = weight_formats[index].type;
        if constexpr (allowed(one))
            if (type == one) body(std::integral_constant<weight_type, one>{});
    };
    [&]<size_t... index>(std::index_sequence<index...>) {
        (call.template operator()<index>(), ...);
    }
    (std::make_index_sequence<weight_format_count>());
}
template <class Body>
void with_any_type(weight_type type, Body &&body) {
    with_type_of<any_type>(type, body);
}
// Of types whose values lie alone or in pairs.
template <class Body>
void with_type(weight_type type, Body &&body) {
    with_type_of<not_in_groups>(type, body);
}

}  // namespace moorage::core

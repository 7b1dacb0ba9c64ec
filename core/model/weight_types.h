// weight_types.h - the formats in which weights are stored, one row each.
//
// A row of a matrix is a sequence of blocks of values. A format that stores the scales of its
// blocks separately has them in matrix::scales. Sizes, segments, copies and measurements follow
// from this table. In addition to its row, a format needs its definition (weight_values.cpp) and a
// reader that turns its blocks into floats: core/execute/cpu/kernels_vector-inl.h, or for groups
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

// How a value is represented as bf16 numbers for a GPU's matrix units.
enum class unit_form : uint8_t {
    itself,
    one,  // one number, equal to it
    two   // two numbers, whose sum is nearly equal
};
// How values are laid out in memory, which decides the loops that read them.
enum class value_order : uint8_t {
    single,  // separate values; files use the same name for the format
    pairs,   // two neighbours share a byte; scales are separate
    groups   // read 32 values at a time, whatever the block
};

inline constexpr uint32_t no_gguf_id = UINT32_MAX, group_values = 32;

struct weight_format {
    weight_type type;
    const char *name;
    uint32_t block;        // values per block
    uint32_t bytes;        // bytes per block
    uint32_t scale_bytes;  // bytes of a block's separate scale; 0: no scale, or within the block
    unit_form unit;
    value_order order;
    uint32_t gguf_id = no_gguf_id;  // number of the type in GGUF files
    uint32_t scale_rows = 1;        // rows that share separate scales
};
// In the order of weight_type. weight_values.cpp gives the layouts of GGUF types.
inline constexpr weight_format weight_formats[] = {
    {weight_type::bf16, "bf16", 1, 2, 0, unit_form::itself, value_order::single, 30},
    {weight_type::f16, "f16", 1, 2, 0, unit_form::two, value_order::single, 1},
    {weight_type::f32, "f32", 1, 4, 0, unit_form::two, value_order::single, 0},
    // Two 4-bit floats per byte, the low half first. A scale is one E8M0 byte.
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
    // The same numbers as mxfp4, but in another order and with the scale in the block.
    {weight_type::mxfp4_gguf, "mxfp4", 32, 17, 0, unit_form::one, value_order::groups, 39},
    // E4M3. One float32 scales 128 columns of 128 rows.
    {weight_type::fp8, "fp8", 128, 128, 4, unit_form::two, value_order::groups, no_gguf_id, 128},
    // Four bits in groups that share a scale and a zero point; all packings of checkpoints become
    // this. A float32, the zero point in a byte, then nibbles as in q4_0.
    {weight_type::int4_32, "int4", 32, 21, 0, unit_form::two, value_order::groups},
    {weight_type::int4_64, "int4", 64, 37, 0, unit_form::two, value_order::groups},
    {weight_type::int4_128, "int4", 128, 69, 0, unit_form::two, value_order::groups},
    // The same, but a column may belong to any group (matrix::group_of). The row holds the nibbles.
    // A scale and a zero point for each group, two float32, are stored separately.
    {weight_type::int4_ordered, "int4", 32, 16, 8, unit_form::two, value_order::groups},
};
inline constexpr size_t weight_format_count = std::size(weight_formats);
// The type of random models, and the type that is measured most.
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

// Do the CPU's kernels read 32 values of the type at a time?
constexpr bool in_groups(weight_type type) { return format_of(type).order == value_order::groups; }
constexpr bool not_in_groups(weight_type type) { return !in_groups(type); }
constexpr bool any_type(weight_type) { return true; }

// Bytes of `columns` values of a row, without scales. Requires: whole blocks; for fp8, whose last
// block may be cut, whole values.
constexpr uint64_t bytes_of_columns(weight_type type, uint64_t columns) {
    const weight_format &format = format_of(type);
    assert(columns % format.block == 0 || format.bytes == format.block);
    return columns * format.bytes / format.block;
}
// Bytes of one row of separate scales (weight_format::scale_rows). For int4_ordered the matrix
// knows them (scale_bytes_of in weights.h).
constexpr uint64_t scale_bytes_of(weight_type type, uint64_t columns) {
    const weight_format &format = format_of(type);
    return (columns + format.block - 1) / format.block * format.scale_bytes;
}

// Calls body with the type as a constant if `allowed` accepts it.
template <bool (*allowed)(weight_type), class Body>
void with_type_of(weight_type type, Body &&body) {
    const auto call = [&]<size_t index>() {
        constexpr weight_type candidate = weight_formats[index].type;
        if constexpr (allowed(candidate))
            if (type == candidate) body(std::integral_constant<weight_type, candidate>{});
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
// For types with order single or pairs.
template <class Body>
void with_type(weight_type type, Body &&body) {
    with_type_of<not_in_groups>(type, body);
}

}  // namespace moorage::core

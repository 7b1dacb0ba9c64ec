// kernels_vector_groups.cpp - readers of the formats whose values lie in groups. 32 values at a
// time become floats, exactly those that core/model/weight_values.cpp defines.
//
// A scale times a code is exact in float32 for every format here. So only the one sum or product
// rounds that also rounds in the value's definition, fused or not.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_groups.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

using words = hn::Vec<word_tag>;
using integer_tag = hn::Rebind<int32_t, float_tag>;
// Vectors of 16 values, and of a group.
constexpr uint32_t HALF = 16 / LANES, GROUP = 2 * HALF;

HWY_INLINE float_vector broadcast(float value) { return hn::Set(float_tag(), value); }
HWY_INLINE float_vector floats_of(words codes) {
    return hn::ConvertTo(float_tag(), hn::BitCast(integer_tag(), codes));
}
HWY_INLINE float_vector floats_of_bytes(const std::byte *source) {
    const hn::Rebind<int8_t, float_tag> bytes;
    return hn::ConvertTo(
        float_tag(),
        hn::PromoteTo(integer_tag(), hn::LoadU(bytes, reinterpret_cast<const int8_t *>(source))));
}
HWY_INLINE words bits(words codes, uint32_t low, uint32_t mask) {
    return hn::And(hn::ShiftRightSame(codes, static_cast<int>(low)), hn::Set(word_tag(), mask));
}
HWY_INLINE uint32_t byte_at(const std::byte *source, size_t index) {
    return std::to_integer<uint32_t>(source[index]);
}
// A binary16, in every lane.
HWY_INLINE float_vector half_at(const std::byte *source) {
    uint16_t word;
    std::memcpy(&word, source, sizeof word);
    const hn::Rebind<hwy::float16_t, float_tag> halves;
    return hn::PromoteTo(float_tag(), hn::BitCast(halves, hn::Set(half_word_tag(), word)));
}

// Calls visit(number of the vector, codes) for the 32 nibbles of 16 bytes, the low ones first.
template <class Visit>
HWY_INLINE void visit_nibbles(const std::byte *source, Visit &&visit) {
    for (uint32_t i = 0; i < HALF; ++i) {
        const words codes = load_bytes(source + i * LANES);
        visit(i, hn::And(codes, hn::Set(word_tag(), 15)));
        visit(i + HALF, hn::ShiftRight<4>(codes));
    }
}
// The same where a bit of `high` goes before each nibble, the lowest first.
template <class Visit>
HWY_INLINE void visit_five_bits(const std::byte *high, const std::byte *source, Visit &&visit) {
    uint32_t word;
    std::memcpy(&word, high, sizeof word);
    visit_nibbles(source, [&](uint32_t i, words codes) HWY_ATTR {
        const words place = hn::Iota(word_tag(), i * LANES);
        const words bit =
            hn::And(hn::Shr(hn::Set(word_tag(), word), place), hn::Set(word_tag(), 1));
        visit(i, hn::Or(codes, hn::ShiftLeft<4>(bit)));
    });
}

// Sixteen small numbers by their codes.
struct code_table {
    alignas(64) float floats[16];
    alignas(16) int8_t bytes[16];
};
constexpr code_table table_of(std::array<int8_t, 16> values) {
    code_table table{};
    for (uint32_t i = 0; i < 16; ++i) table.floats[i] = table.bytes[i] = values[i];
    return table;
}
constexpr code_table IQ4 =
    table_of({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});
constexpr code_table TWICE_FP4 =
    table_of({0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12});

HWY_INLINE float_vector looked_up(const code_table &table, words codes) {
    const float_tag d;
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, table.floats[hn::GetLane(codes)]);
#else
    if constexpr (LANES == 16) {
        return hn::TableLookupLanes(hn::Load(d, table.floats), hn::IndicesFromVec(d, codes));
    } else {
        const hn::Repartition<uint8_t, float_tag> bytes;
        const auto entries = hn::LoadDup128(bytes, reinterpret_cast<const uint8_t *>(table.bytes));
        const auto index = hn::Or(hn::ShiftLeft<24>(codes), hn::Set(word_tag(), 0x00808080));
        const auto found = hn::TableLookupBytesOr0(entries, hn::BitCast(bytes, index));
        return hn::ConvertTo(d, hn::ShiftRight<24>(hn::BitCast(integer_tag(), found)));
    }
#endif
}

// read(row, column, out): the group that begins at `column`, GROUP vectors.
template <weight_type type>
struct group_reader;

template <weight_type type>
HWY_INLINE const std::byte *block_at(const group_row &row, uint32_t column) {
    return row.values + size_t{column / format_of(type).block} * format_of(type).bytes;
}
// The number of the group within its block, for blocks of 256.
HWY_INLINE uint32_t group_in_block(uint32_t column) { return column % 256 / group_values; }

template <>
struct group_reader<weight_type::q8_0> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q8_0>(row, column);
        const float_vector scale = half_at(block);
        for (uint32_t i = 0; i < GROUP; ++i)
            values[i] = hn::Mul(scale, floats_of_bytes(block + 2 + i * LANES));
    }
};
template <>
struct group_reader<weight_type::q4_0> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q4_0>(row, column);
        const float_vector scale = half_at(block);
        visit_nibbles(block + 2, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::Mul(scale, hn::Sub(floats_of(codes), broadcast(8)));
        });
    }
};
template <>
struct group_reader<weight_type::q4_1> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q4_1>(row, column);
        const float_vector scale = half_at(block), least = half_at(block + 2);
        visit_nibbles(block + 4, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::MulAdd(scale, floats_of(codes), least);
        });
    }
};
template <>
struct group_reader<weight_type::q5_0> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q5_0>(row, column);
        const float_vector scale = half_at(block);
        visit_five_bits(block + 2, block + 6, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::Mul(scale, hn::Sub(floats_of(codes), broadcast(16)));
        });
    }
};
template <>
struct group_reader<weight_type::q5_1> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q5_1>(row, column);
        const float_vector scale = half_at(block), least = half_at(block + 2);
        visit_five_bits(block + 4, block + 8, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::MulAdd(scale, floats_of(codes), least);
        });
    }
};

// Two bits of each value: of 32 bytes for four groups, the group's pair.
HWY_INLINE words two_bits(const std::byte *source, uint32_t group, uint32_t i) {
    return bits(load_bytes(source + group / 4 * 32 + i * LANES), group % 4 * 2, 3);
}

template <>
struct group_reader<weight_type::q2_k> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q2_k>(row, column);
        const uint32_t group = group_in_block(column);
        const float_vector scale = half_at(block + 80), least = half_at(block + 82);
        for (uint32_t i = 0; i < GROUP; ++i) {
            const uint32_t packed = byte_at(block, 2 * group + i / HALF);
            const float_vector group_scale =
                hn::Mul(scale, broadcast(static_cast<float>(packed & 15)));
            const float_vector group_minimum =
                hn::Mul(least, broadcast(static_cast<float>(packed >> 4)));
            values[i] =
                hn::MulSub(group_scale, floats_of(two_bits(block + 16, group, i)), group_minimum);
        }
    }
};
template <>
struct group_reader<weight_type::q3_k> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q3_k>(row, column);
        const uint32_t group = group_in_block(column);
        const float_vector scale = half_at(block + 108);
        for (uint32_t i = 0; i < GROUP; ++i) {
            const uint32_t k = 2 * group + i / HALF;
            const uint32_t low = byte_at(block, 96 + k % 8) >> k / 8 * 4 & 15;
            const uint32_t high = byte_at(block, 104 + k % 4) >> k / 4 * 2 & 3;
            const float_vector group_scale =
                hn::Mul(scale, broadcast(static_cast<float>(low | high << 4) - 32.0f));
            const words top = bits(load_bytes(block + i * LANES), group, 1);
            const words code = hn::Or(two_bits(block + 32, group, i), hn::ShiftLeft<2>(top));
            values[i] = hn::Mul(group_scale, hn::Sub(floats_of(code), broadcast(4)));
        }
    }
};

// The six-bit scale and minimum of a group of Q4_K and Q5_K, times those of the block.
struct scale_and_least {
    float_vector scale, least;
};
HWY_INLINE scale_and_least scales_of_k(const std::byte *block, uint32_t group) {
    const std::byte *packed = block + 4;
    uint32_t scale, least;
    if (group < 4) {
        scale = byte_at(packed, group) & 63;
        least = byte_at(packed, 4 + group) & 63;
    } else {
        const uint32_t low = byte_at(packed, 4 + group);
        scale = (low & 15) | byte_at(packed, group - 4) >> 6 << 4;
        least = low >> 4 | byte_at(packed, group) >> 6 << 4;
    }
    return {hn::Mul(half_at(block), broadcast(static_cast<float>(scale))),
            hn::Mul(half_at(block + 2), broadcast(static_cast<float>(least)))};
}
// Nibbles of 32 bytes, low for even groups.
HWY_INLINE words nibbles_of_k(const std::byte *source, uint32_t group, uint32_t i) {
    return bits(load_bytes(source + group / 2 * 32 + i * LANES), group % 2 * 4, 15);
}

template <>
struct group_reader<weight_type::q4_k> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q4_k>(row, column);
        const uint32_t group = group_in_block(column);
        const scale_and_least scales = scales_of_k(block, group);
        for (uint32_t i = 0; i < GROUP; ++i)
            values[i] = hn::MulSub(scales.scale, floats_of(nibbles_of_k(block + 16, group, i)),
                                   scales.least);
    }
};
template <>
struct group_reader<weight_type::q5_k> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q5_k>(row, column);
        const uint32_t group = group_in_block(column);
        const scale_and_least scales = scales_of_k(block, group);
        for (uint32_t i = 0; i < GROUP; ++i) {
            const words top = bits(load_bytes(block + 16 + i * LANES), group, 1);
            const words code = hn::Or(nibbles_of_k(block + 48, group, i), hn::ShiftLeft<4>(top));
            values[i] = hn::MulSub(scales.scale, floats_of(code), scales.least);
        }
    }
};
template <>
struct group_reader<weight_type::q6_k> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::q6_k>(row, column);
        const uint32_t group = group_in_block(column), half = group / 4, quarter = group % 4;
        const std::byte *low = block + 64 * half + quarter % 2 * 32;
        const float_vector scale = half_at(block + 208);
        for (uint32_t i = 0; i < GROUP; ++i) {
            const auto scale_code = std::to_integer<int8_t>(block[192 + 2 * group + i / HALF]);
            const words top = two_bits(block + 128, group, i);
            const words code = hn::Or(bits(load_bytes(low + i * LANES), quarter / 2 * 4, 15),
                                      hn::ShiftLeft<4>(top));
            values[i] = hn::Mul(hn::Mul(scale, broadcast(scale_code)),
                                hn::Sub(floats_of(code), broadcast(32)));
        }
    }
};
template <>
struct group_reader<weight_type::iq4_nl> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::iq4_nl>(row, column);
        const float_vector scale = half_at(block);
        visit_nibbles(block + 2, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::Mul(scale, looked_up(IQ4, codes));
        });
    }
};
template <>
struct group_reader<weight_type::iq4_xs> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::iq4_xs>(row, column);
        const uint32_t group = group_in_block(column);
        const uint32_t high = byte_at(block, 2) | byte_at(block, 3) << 8;
        const uint32_t scale_code =
            (byte_at(block, 4 + group / 2) >> group % 2 * 4 & 15) | (high >> 2 * group & 3) << 4;
        const float_vector scale =
            hn::Mul(half_at(block), broadcast(static_cast<float>(scale_code) - 32.0f));
        visit_nibbles(block + 8 + 16 * group, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::Mul(scale, looked_up(IQ4, codes));
        });
    }
};
template <>
struct group_reader<weight_type::mxfp4_gguf> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<weight_type::mxfp4_gguf>(row, column);
        // Half the scale for twice the value: the largest scale itself is no float32.
        const uint32_t exponent = byte_at(block, 0);
        const float_vector scale = broadcast(
            std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23));
        visit_nibbles(block + 1, [&](uint32_t i, words codes) HWY_ATTR {
            values[i] = hn::Mul(scale, looked_up(TWICE_FP4, codes));
        });
    }
};
template <>
struct group_reader<weight_type::fp8> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        float scale;
        std::memcpy(&scale, row.scales + column / 128 * sizeof scale, sizeof scale);
        for (uint32_t i = 0; i < GROUP; ++i) {
            const words code = load_bytes(row.values + column + i * LANES);
            const words magnitude = hn::And(code, hn::Set(word_tag(), 0x7f));
            const words sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(word_tag(), 0x80)));
            // Exponent and fraction where a float has them, whose bias is larger by 120.
            const words placed = hn::Or(hn::ShiftLeft<20>(magnitude), sign);
            const words none = hn::Set(word_tag(), 0x7fc00000);
            const words odd =
                hn::VecFromMask(word_tag(), hn::Eq(magnitude, hn::Set(word_tag(), 0x7f)));
            const float_vector value =
                hn::Mul(hn::BitCast(float_tag(), placed), broadcast(0x1p120f));
            values[i] = hn::Mul(hn::BitCast(float_tag(), hn::Or(hn::BitCast(word_tag(), value),
                                                                hn::And(odd, none))),
                                broadcast(scale));
        }
    }
};

template <weight_type type>
struct int4_reader {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const std::byte *block = block_at<type>(row, column);
        float scale;
        std::memcpy(&scale, block, sizeof scale);
        const float_vector zero = broadcast(static_cast<float>(byte_at(block, 4)));
        visit_nibbles(block + 5 + column % format_of(type).block / 2,
                      [&](uint32_t i, words codes) HWY_ATTR {
                          values[i] = hn::Mul(broadcast(scale), hn::Sub(floats_of(codes), zero));
                      });
    }
};
template <>
struct group_reader<weight_type::int4_32> : int4_reader<weight_type::int4_32> {};
template <>
struct group_reader<weight_type::int4_64> : int4_reader<weight_type::int4_64> {};
template <>
struct group_reader<weight_type::int4_128> : int4_reader<weight_type::int4_128> {};
template <>
struct group_reader<weight_type::int4_ordered> {
    static HWY_INLINE void read(const group_row &row, uint32_t column, float_vector *values) {
        const auto *scales = reinterpret_cast<const float *>(row.scales);
        visit_nibbles(row.values + column / 2, [&](uint32_t i, words codes) HWY_ATTR {
            const words group = hn::LoadU(word_tag(), row.group_of + column + i * LANES);
            const auto place = hn::BitCast(integer_tag(), hn::ShiftLeft<1>(group));
            const float_vector scale = hn::GatherIndex(float_tag(), scales, place);
            const float_vector zero = hn::GatherIndex(float_tag(), scales + 1, place);
            values[i] = hn::Mul(scale, hn::Sub(floats_of(codes), zero));
        });
    }
};

template <weight_type type>
void widen_groups(const group_row &row, uint32_t begin, uint32_t count, float *target) {
    for (uint32_t offset = 0; offset < count; offset += group_values) {
        float_vector values[GROUP];
        group_reader<type>::read(row, begin + offset, values);
        for (uint32_t i = 0; i < GROUP; ++i)
            hn::StoreU(values[i], float_tag(), target + offset + i * LANES);
    }
}

template <size_t... index>
constexpr group_kernels kernels_of(std::index_sequence<index...>) {
    group_kernels kernels{};
    const auto add = [&]<size_t number>() {
        constexpr weight_type type = weight_formats[number].type;
        if constexpr (in_groups(type)) kernels.widen[number] = widen_groups<type>;
    };
    (add.template operator()<index>(), ...);
    return kernels;
}

const group_kernels *table() {
    static constexpr group_kernels KERNELS =
        kernels_of(std::make_index_sequence<weight_format_count>());
    return &KERNELS;
}

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
const group_kernels &vector_groups() { return *MOORAGE_CHOSEN_TARGET(table)(); }
}  // namespace moorage::core
#endif

// kernels_vector-inl.h - the common part of the vector kernels: loading weights of any type as
// floats, sums across lanes, transposing a block of lanes. Included once per instruction set.
//
// Vectors of a length unknown at compile time are left out (kernels_targets.h), so arrays of
// vectors are fine here.
#if defined(MOORAGE_KERNELS_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOORAGE_KERNELS_VECTOR_INL_H
#undef MOORAGE_KERNELS_VECTOR_INL_H
#else
#define MOORAGE_KERNELS_VECTOR_INL_H
#endif

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

// The target that runs everywhere uses loops in place of instructions. With sanitizers, these loops
// take more than half of the time to compile these files.
#if defined(MOORAGE_FEW_TARGETS) && defined(__clang__)
#if HWY_TARGET == HWY_STATIC_TARGET
#pragma clang optimize off
#else
#pragma clang optimize on
#endif
#endif

#include "core/execute/cpu/kernels_vector.h"
#include "core/model/weights.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using float_tag = hn::ScalableTag<float>;
using float_vector = hn::Vec<float_tag>;
using word_tag = hn::Rebind<uint32_t, float_tag>;
using half_word_tag = hn::Rebind<uint16_t, float_tag>;
constexpr uint32_t LANES = HWY_LANES(float);

// Files and caches promise no alignment, not even that of a single value.
HWY_INLINE float_vector load_floats(const std::byte *source) {
#if HWY_TARGET == HWY_SCALAR
    float value;
    std::memcpy(&value, source, sizeof value);
    return hn::Set(float_tag(), value);
#else
    const hn::Repartition<uint8_t, float_tag> bytes;
    return hn::BitCast(float_tag(), hn::LoadU(bytes, reinterpret_cast<const uint8_t *>(source)));
#endif
}

HWY_INLINE hn::Vec<half_word_tag> load_half_words(const std::byte *source) {
#if HWY_TARGET == HWY_SCALAR
    uint16_t word;
    std::memcpy(&word, source, sizeof word);
    return hn::Set(half_word_tag(), word);
#else
    const hn::Repartition<uint8_t, half_word_tag> bytes;
    return hn::BitCast(half_word_tag(),
                       hn::LoadU(bytes, reinterpret_cast<const uint8_t *>(source)));
#endif
}

// The values of 4-bit floats in the low four bits of each lane.
template <class Vector>
HWY_INLINE float_vector fp4_values(Vector codes) {
    const float_tag d;
    alignas(64) static constexpr float VALUES[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                     4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                     -2.0f, -3.0f, -4.0f, -6.0f};
    const hn::Vec<word_tag> low = hn::And(codes, hn::Set(word_tag(), 15));
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, VALUES[hn::GetLane(low)]);
#else
    if constexpr (LANES == 16) {
        return hn::TableLookupLanes(hn::Load(d, VALUES), hn::IndicesFromVec(d, low));
    } else {
        // Twice the value as a signed byte. The lookup puts it into the top byte of each lane.
        alignas(16) static constexpr int8_t TWICE[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                         0, -1, -2, -3, -4, -6, -8, -12};
        const hn::Repartition<uint8_t, float_tag> bytes;
        const hn::Rebind<int32_t, float_tag> integers;
        const auto table = hn::LoadDup128(bytes, reinterpret_cast<const uint8_t *>(TWICE));
        const auto index = hn::Or(hn::ShiftLeft<24>(low), hn::Set(word_tag(), 0x00808080));
        const auto found = hn::TableLookupBytesOr0(table, hn::BitCast(bytes, index));
        const auto twice = hn::ShiftRight<24>(hn::BitCast(integers, found));
        return hn::Mul(hn::ConvertTo(d, twice), hn::Set(d, 0.5f));
    }
#endif
}

// Loads LANES bytes, one into each lane.
HWY_INLINE hn::Vec<word_tag> load_bytes(const std::byte *source) {
    const hn::Rebind<uint8_t, float_tag> bytes;
    return hn::PromoteTo(word_tag(), hn::LoadU(bytes, reinterpret_cast<const uint8_t *>(source)));
}

// Converts weights of a format to floats in registers. load() gives single values, LANES at a time.
// For values of 16 bits, part() also gives two at a time, the first in the low half of each word.
// For blocks, load_two() gives the even and the odd ones of 2 * LANES columns, without their scale.
template <weight_type type>
struct reader;

template <>
struct reader<weight_type::f32> {
    static HWY_INLINE float_vector load(const std::byte *source) { return load_floats(source); }
};

template <>
struct reader<weight_type::f16> {
    static HWY_INLINE float_vector load(const std::byte *source) {
        return widened(load_half_words(source));
    }
#if HWY_TARGET != HWY_SCALAR
    static HWY_INLINE void part(hn::Vec<word_tag> words, float_vector &first,
                                float_vector &second) {
        const half_word_tag shorts;
        first = widened(hn::TruncateTo(shorts, words));
        second = widened(hn::TruncateTo(shorts, hn::ShiftRight<16>(words)));
    }
#endif

private:
    static HWY_INLINE float_vector widened(hn::Vec<half_word_tag> words) {
        const hn::Rebind<hwy::float16_t, float_tag> halves;
        return hn::PromoteTo(float_tag(), hn::BitCast(halves, words));
    }
};

template <>
struct reader<weight_type::bf16> {
    static HWY_INLINE float_vector load(const std::byte *source) {
        const hn::Vec<word_tag> words = hn::PromoteTo(word_tag(), load_half_words(source));
        return hn::BitCast(float_tag(), hn::ShiftLeft<16>(words));
    }
#if HWY_TARGET != HWY_SCALAR
    static HWY_INLINE void part(hn::Vec<word_tag> words, float_vector &first,
                                float_vector &second) {
        first = hn::BitCast(float_tag(), hn::ShiftLeft<16>(words));
        second = hn::BitCast(float_tag(), hn::And(words, hn::Set(word_tag(), 0xffff0000u)));
    }
#endif
};

template <>
struct reader<weight_type::mxfp4> {
    static HWY_INLINE void load_two(const std::byte *row, uint32_t column, float_vector &even,
                                    float_vector &odd) {
        const auto codes = load_bytes(row + column / 2);
        even = fp4_values(codes);
        odd = fp4_values(hn::ShiftRight<4>(codes));
    }
    // A power of two, from a byte that holds its exponent.
    static HWY_INLINE float_vector scale(const std::byte *scales, uint32_t column) {
        return hn::Set(float_tag(), E8M0_VALUES[std::to_integer<uint32_t>(scales[column / 32])]);
    }
};

// How far ahead weights are prefetched, into the second nearest cache. The nearest cache can wait
// for a few dozen lines only, fewer than memory can have on the way. Measured on a Zen 4 core with
// pages of 4 KiB, decoding bf16 (gguf_passes, 2026-11), milliseconds a token: 31 without, 42 and 41
// with 8 and 16 KiB into the nearest cache, 28 and 26 with 4 and 16 KiB into the second.
constexpr uint64_t AHEAD_BYTES = 16384;
HWY_INLINE void prefetch_line(const void *address) {
    __builtin_prefetch(address, /*to write=*/0, /*locality=*/2);
}

// Prefetches the line that is `ahead` bytes further on, once for each line that the columns of a
// row pass. Panels are few bytes away, so they go into the nearest cache.
template <weight_type type, bool nearest = false>
HWY_INLINE void prefetch_ahead(const std::byte *row, uint32_t column, uint64_t ahead) {
    constexpr weight_format FORMAT = format_of(type);
    if (column % (64 * FORMAT.block / FORMAT.bytes) != 0) return;
    const std::byte *const address = row + bytes_of_columns(type, column) + ahead;
    if constexpr (nearest)
        hwy::Prefetch(address);
    else
        prefetch_line(address);
}

// The sums of four vectors, as four floats.
template <class Vector>
HWY_INLINE void sum_four(Vector a, Vector b, Vector c, Vector d4, float *target) {
#if HWY_TARGET == HWY_SCALAR
    target[0] = hn::GetLane(a);
    target[1] = hn::GetLane(b);
    target[2] = hn::GetLane(c);
    target[3] = hn::GetLane(d4);
#else
    const hn::DFromV<Vector> d;
    const auto ac = hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));
    const auto bd = hn::Add(hn::InterleaveLower(d, b, d4), hn::InterleaveUpper(d, b, d4));
    auto sums = hn::Add(hn::InterleaveLower(d, ac, bd), hn::InterleaveUpper(d, ac, bd));
    if constexpr (LANES >= 8) sums = hn::Add(sums, hn::SwapAdjacentBlocks(sums));
    if constexpr (LANES >= 16) sums = hn::Add(sums, hn::ConcatLowerUpper(d, sums, sums));
    const hn::CappedTag<float, 4> four;
    if constexpr (LANES == 16) {
        hn::StoreU(hn::LowerHalf(hn::LowerHalf(sums)), four, target);
    } else if constexpr (LANES == 8) {
        hn::StoreU(hn::LowerHalf(sums), four, target);
    } else {
        hn::StoreU(sums, four, target);
    }
#endif
}

// Lane i of vector j becomes lane j of vector i, for LANES vectors.
template <class Tag>
HWY_INLINE void transpose(Tag d, hn::Vec<Tag> *v) {
#if HWY_TARGET != HWY_SCALAR
    const hn::Repartition<uint64_t, Tag> wide;
    for (uint32_t i = 0; i < LANES; i += 4) {
        const auto ac_low = hn::InterleaveLower(d, v[i], v[i + 1]);
        const auto ac_high = hn::InterleaveUpper(d, v[i], v[i + 1]);
        const auto bd_low = hn::InterleaveLower(d, v[i + 2], v[i + 3]);
        const auto bd_high = hn::InterleaveUpper(d, v[i + 2], v[i + 3]);
        const auto a = hn::BitCast(wide, ac_low), b = hn::BitCast(wide, bd_low);
        const auto e = hn::BitCast(wide, ac_high), f = hn::BitCast(wide, bd_high);
        v[i] = hn::BitCast(d, hn::InterleaveLower(wide, a, b));
        v[i + 1] = hn::BitCast(d, hn::InterleaveUpper(wide, a, b));
        v[i + 2] = hn::BitCast(d, hn::InterleaveLower(wide, e, f));
        v[i + 3] = hn::BitCast(d, hn::InterleaveUpper(wide, e, f));
    }
    // Blocks of four lanes: v[4 g + c] block b holds column 4 b + c of rows 4 g
    // .. 4 g + 3.
    if constexpr (LANES == 8) {
        for (uint32_t c = 0; c < 4; ++c) {
            const auto low = v[c], high = v[4 + c];
            v[c] = hn::ConcatLowerLower(d, high, low);
            v[4 + c] = hn::ConcatUpperUpper(d, high, low);
        }
    } else if constexpr (LANES == 16) {
        for (uint32_t c = 0; c < 4; ++c) {
            const auto g0 = v[c], g1 = v[4 + c], g2 = v[8 + c], g3 = v[12 + c];
            const auto even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(g1), g0);
            const auto odd01 = hn::OddEvenBlocks(g1, hn::SwapAdjacentBlocks(g0));
            const auto even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(g3), g2);
            const auto odd23 = hn::OddEvenBlocks(g3, hn::SwapAdjacentBlocks(g2));
            v[c] = hn::ConcatLowerLower(d, even23, even01);
            v[4 + c] = hn::ConcatLowerLower(d, odd23, odd01);
            v[8 + c] = hn::ConcatUpperUpper(d, even23, even01);
            v[12 + c] = hn::ConcatUpperUpper(d, odd23, odd01);
        }
    }
#else
    (void)d;
    (void)v;
#endif
}

}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

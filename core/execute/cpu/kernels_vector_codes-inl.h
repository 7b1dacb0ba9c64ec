// kernels_vector_codes-inl.h - readers for the formats whose values lie in groups
// (kernels_codes.h). They make codes of eight bits, a scale and an offset. Included once per
// instruction set with vectors.
#if defined(MOORAGE_KERNELS_VECTOR_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOORAGE_KERNELS_VECTOR_CODES_INL_H
#undef MOORAGE_KERNELS_VECTOR_CODES_INL_H
#else
#define MOORAGE_KERNELS_VECTOR_CODES_INL_H
#endif

#include <array>

#include "core/execute/cpu/kernels_codes.h"
#include "core/execute/cpu/kernels_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

// At most 32 codes are made at a time, even if the vectors hold more.
using code_tag = hn::CappedTag<uint8_t, 32>;
using code_vector = hn::Vec<code_tag>;
using sixteen_tag = hn::CappedTag<uint8_t, 16>;
constexpr uint32_t CODES = HWY_LANES(uint8_t) >= 32 ? 32 : 16;

HWY_INLINE code_vector load_codes(const std::byte *source) {
    return hn::LoadU(code_tag(), reinterpret_cast<const uint8_t *>(source));
}
HWY_INLINE code_vector same_code(uint32_t value) {
    return hn::Set(code_tag(), static_cast<uint8_t>(value));
}
// The same 16 bytes in every 16 of a vector.
HWY_INLINE code_vector load_sixteen(const void *source) {
    return hn::LoadDup128(code_tag(), static_cast<const uint8_t *>(source));
}

// Stores a at `target` and b 32 bytes further on. Codes are stored as wide as they will be loaded,
// because a load has to wait for several earlier stores.
HWY_INLINE void store_two(code_vector a, code_vector b, uint8_t *target) {
#if HWY_MAX_BYTES == 64
    const hn::Repartition<uint8_t, float_tag> d;
    hn::Store(hn::Combine(d, b, a), d, target);
#else
    hn::Store(a, code_tag(), target);
    hn::Store(b, code_tag(), target + 32);
#endif
}
// Sixteen bytes of two words.
HWY_INLINE hn::Vec<sixteen_tag> sixteen_of(uint64_t low, uint64_t high) {
    const hn::CappedTag<uint64_t, 2> d;
    return hn::BitCast(sixteen_tag(), hn::InterleaveLower(d, hn::Set(d, low), hn::Set(d, high)));
}

#if HWY_MAX_BYTES == 64
// Codes 64 at a time.
using wide_tag = hn::Repartition<uint8_t, float_tag>;
using wide_vector = hn::Vec<wide_tag>;
HWY_INLINE void store_wide(wide_vector codes, uint8_t *target) {
    hn::Store(codes, wide_tag(), target);
}
// 16 bytes twice, then 16 others twice. For 32 bytes the same, whole.
HWY_INLINE wide_vector load_two(const std::byte *a, const std::byte *b) {
    const wide_tag d;
    const auto upper = hn::Not(hn::FirstN(d, 32));
    return hn::IfThenElse(upper, hn::LoadDup128(d, reinterpret_cast<const uint8_t *>(b)),
                          hn::LoadDup128(d, reinterpret_cast<const uint8_t *>(a)));
}
HWY_INLINE wide_vector load_twice(const std::byte *source) {
    const code_vector half = load_codes(source);
    return hn::Combine(wide_tag(), half, half);
}
// Shifts each word to the right by its own number of bits, and keeps in each byte the bits of
// `mask`.
template <uint32_t mask>
HWY_INLINE wide_vector shifted(wide_vector bytes, const uint32_t *shifts) {
    const word_tag words;
    const auto moved = hn::Shr(hn::BitCast(words, bytes), hn::Load(words, shifts));
    return hn::And(hn::BitCast(wide_tag(), moved), hn::Set(wide_tag(), uint8_t{mask}));
}
// The low nibbles of 16 bytes and the high ones of the next 16. The same for 32.
HWY_INLINE wide_vector nibbles_of_quarters(wide_vector bytes) {
    alignas(64) static constexpr uint32_t SHIFTS[16] = {0, 0, 0, 0, 4, 4, 4, 4,
                                                        0, 0, 0, 0, 4, 4, 4, 4};
    return shifted<15>(bytes, SHIFTS);
}
HWY_INLINE wide_vector nibbles_of_halves(wide_vector bytes) {
    alignas(64) static constexpr uint32_t SHIFTS[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                                        4, 4, 4, 4, 4, 4, 4, 4};
    return shifted<15>(bytes, SHIFTS);
}
#endif

// Nibbles [first, first + CODES) of 16 bytes. The low nibbles come first.
HWY_INLINE code_vector nibbles_of(const std::byte *source, uint32_t first) {
    if constexpr (CODES == 32) {
        alignas(32) static constexpr uint32_t SHIFTS[8] = {0, 0, 0, 0, 4, 4, 4, 4};
        const hn::Repartition<uint32_t, code_tag> words;
        const auto packed = hn::BitCast(words, load_sixteen(source));
        const auto codes = hn::BitCast(code_tag(), hn::Shr(packed, hn::Load(words, SHIFTS)));
        return hn::And(codes, same_code(15));
    } else {
        const auto packed = load_codes(source);
        return first == 0 ? hn::And(packed, same_code(15)) : hn::ShiftRight<4>(packed);
    }
}
// For codes [first, first + CODES): 0 if a bit of the 32 is zero, `value` if it is one.
HWY_INLINE code_vector bits_of_word(uint32_t word, uint32_t first, uint32_t value) {
    alignas(32) static constexpr uint8_t PLACE[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                                      1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                                      2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    alignas(32) static constexpr uint8_t BIT[32] = {1,  2,   4,  8,  16,  32, 64, 128, 1,  2,  4,
                                                    8,  16,  32, 64, 128, 1,  2,  4,   8,  16, 32,
                                                    64, 128, 1,  2,  4,   8,  16, 32,  64, 128};
    const code_tag d;
    const hn::Repartition<uint32_t, code_tag> words;
    const auto spread =
        hn::TableLookupBytes(hn::BitCast(d, hn::Set(words, word)), hn::Load(d, PLACE + first));
    const auto bit = hn::Load(d, BIT + first);
    return hn::And(hn::VecFromMask(d, hn::Eq(hn::And(spread, bit), bit)), same_code(value));
}
HWY_INLINE uint32_t word_at(const std::byte *source) {
    uint32_t word;
    std::memcpy(&word, source, sizeof word);
    return word;
}

// Sixteen of each, from eight: every one twice.
HWY_INLINE void floats_of_halves(uint64_t low, uint64_t high, float *target) {
    const hn::CappedTag<uint16_t, 8> halves;
    const auto packed = hn::BitCast(halves, sixteen_of(low, high));
    const auto lower = hn::InterleaveLower(halves, packed, packed);
    const auto upper = hn::InterleaveUpper(halves, packed, packed);
    const float_tag d;
    const hn::Rebind<hwy::float16_t, float_tag> words;
#if HWY_MAX_BYTES == 64
    const hn::Rebind<uint16_t, float_tag> both_halves;
    hn::Store(hn::PromoteTo(d, hn::BitCast(words, hn::Combine(both_halves, upper, lower))), d,
              target);
#elif HWY_MAX_BYTES == 32
    hn::Store(hn::PromoteTo(d, hn::BitCast(words, lower)), d, target);
    hn::Store(hn::PromoteTo(d, hn::BitCast(words, upper)), d, target + 8);
#else
    alignas(16) uint16_t twice[16];
    hn::Store(lower, halves, twice);
    hn::Store(upper, halves, twice + 8);
    const auto *const source = reinterpret_cast<const hwy::float16_t *>(twice);
    for (uint32_t i = 0; i < 16; i += LANES)
        hn::Store(hn::PromoteTo(d, hn::LoadU(words, source + i)), d, target + i);
#endif
}
// Sixteen bytes times one number.
template <class Byte, class Vector>
HWY_INLINE void floats_of_bytes(Vector sixteen, float factor, float *target) {
    const float_tag d;
    const hn::Rebind<int32_t, float_tag> integers;
    const hn::CappedTag<Byte, 16> sixteen_bytes;
    if constexpr (LANES == 16) {
        const auto codes = hn::PromoteTo(integers, hn::BitCast(sixteen_bytes, sixteen));
        hn::Store(hn::Mul(hn::ConvertTo(d, codes), hn::Set(d, factor)), d, target);
    } else {
        alignas(16) Byte stored[16];
        hn::Store(hn::BitCast(sixteen_bytes, sixteen), sixteen_bytes, stored);
        const hn::Rebind<Byte, float_tag> lane_bytes;
        for (uint32_t i = 0; i < 16; i += LANES) {
            const auto codes = hn::PromoteTo(integers, hn::LoadU(lane_bytes, stored + i));
            hn::Store(hn::Mul(hn::ConvertTo(d, codes), hn::Set(d, factor)), d, target + i);
        }
    }
}
// Sixteen exponents as half the powers of two that they stand for.
template <class Vector>
HWY_INLINE void scales_of_exponents(Vector sixteen, float *target) {
    const sixteen_tag bytes;
    alignas(16) uint8_t stored[16];
    hn::Store(sixteen, bytes, stored);
    const word_tag d;
    const hn::Rebind<uint8_t, word_tag> lane_bytes;
    for (uint32_t i = 0; i < 16; i += LANES) {
        const auto e = hn::PromoteTo(d, hn::LoadU(lane_bytes, stored + i));
        const auto normal = hn::ShiftLeft<23>(hn::Sub(e, hn::Set(d, 1u)));
        const auto least = hn::Shl(hn::Set(d, 0x00200000u), hn::Min(e, hn::Set(d, 1u)));
        const auto bits = hn::IfThenElse(hn::Lt(hn::BitCast(hn::RebindToSigned<word_tag>(), e),
                                                hn::Set(hn::RebindToSigned<word_tag>(), 2)),
                                         hn::BitCast(hn::RebindToSigned<word_tag>(), least),
                                         hn::BitCast(hn::RebindToSigned<word_tag>(), normal));
        hn::Store(hn::BitCast(float_tag(), bits), float_tag(), target + i);
    }
}
HWY_INLINE float half_number(const std::byte *source) {
    uint16_t word;
    std::memcpy(&word, source, sizeof word);
    const hn::CappedTag<float, 4> d;
    const hn::Rebind<uint16_t, decltype(d)> words;
    const hn::Rebind<hwy::float16_t, decltype(d)> halves;
    return hn::GetLane(hn::PromoteTo(d, hn::BitCast(halves, hn::Set(words, word))));
}

// The values of nibbles, for formats whose nibbles do not stand for themselves.
alignas(16) constexpr uint8_t IQ4_VALUES[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
alignas(16) constexpr uint8_t FP4_VALUES[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                                16, 15, 14, 13, 12, 10, 8,  4};
constexpr bool has_values(weight_type type) {
    return type == weight_type::iq4_nl || type == weight_type::mxfp4_gguf;
}
constexpr const uint8_t *values_of_nibbles(weight_type type) {
    return type == weight_type::iq4_nl ? IQ4_VALUES : FP4_VALUES;
}
constexpr uint32_t place_of_nibbles(weight_type type) {
    if (type == weight_type::mxfp4_gguf) return 1;
    return type == weight_type::q4_1 ? 4 : 2;
}

// Codes [first, first + CODES) of one block of 32 values, for formats that have such blocks.
template <weight_type type>
HWY_INLINE code_vector codes_of_block(const std::byte *block, uint32_t first) {
    if constexpr (type == weight_type::q8_0) {
        return hn::Xor(load_codes(block + 2 + first), same_code(128));
    } else if constexpr (type == weight_type::q5_0 || type == weight_type::q5_1) {
        constexpr uint32_t HIGH = type == weight_type::q5_0 ? 2 : 4;
        return hn::Or(nibbles_of(block + HIGH + 4, first),
                      bits_of_word(word_at(block + HIGH), first, 16));
    } else {
        const code_vector nibbles = nibbles_of(block + place_of_nibbles(type), first);
        if constexpr (has_values(type))
            return hn::TableLookupBytes(load_sixteen(values_of_nibbles(type)), nibbles);
        else
            return nibbles;
    }
}
// The codes of two blocks, `step` bytes apart.
template <weight_type type>
HWY_INLINE void store_codes(const std::byte *block, size_t step, uint8_t *target) {
#if HWY_MAX_BYTES == 64
    if constexpr (type == weight_type::q8_0) {
        const auto codes =
            hn::Combine(wide_tag(), load_codes(block + step + 2), load_codes(block + 2));
        return store_wide(hn::Xor(codes, hn::Set(wide_tag(), uint8_t{128})), target);
    } else if constexpr (type != weight_type::q5_0 && type != weight_type::q5_1) {
        constexpr uint32_t AT = place_of_nibbles(type);
        const auto nibbles = nibbles_of_quarters(load_two(block + AT, block + step + AT));
        if constexpr (has_values(type))
            return store_wide(
                hn::TableLookupBytes(hn::LoadDup128(wide_tag(), values_of_nibbles(type)), nibbles),
                target);
        else
            return store_wide(nibbles, target);
    }
#endif
    for (uint32_t i = 0; i < 32; i += CODES)
        store_two(codes_of_block<type>(block, i), codes_of_block<type>(block + step, i),
                  target + i);
}

// The binary16 number at `block` of each of eight blocks, as two words.
HWY_INLINE uint64_t four_halves(const std::byte *block, size_t step) {
    uint64_t packed = 0;
    for (uint32_t i = 0; i < 4; ++i) {
        uint16_t half;
        std::memcpy(&half, block + i * step, sizeof half);
        packed |= uint64_t{half} << 16 * i;
    }
    return packed;
}

#if HWY_MAX_BYTES == 64 && HWY_ARCH_X86
// Sixteen words of 128 bytes: two each of blocks that are `step` bytes apart. The first one that
// counts is `skipped` bytes before.
template <uint32_t step, uint32_t skipped>
HWY_INLINE __m256i words_of_blocks(const std::byte *source) {
    alignas(64) static constexpr std::array<uint16_t, 32> PLACES = [] {
        std::array<uint16_t, 32> places{};
        for (uint32_t i = 0; i < 16; ++i)
            places[i] = static_cast<uint16_t>((i / 2 * step - skipped) / 2 % 64);
        return places;
    }();
    const __m512i low = _mm512_loadu_si512(source), high = _mm512_loadu_si512(source + 64);
    return _mm512_castsi512_si256(
        _mm512_permutex2var_epi16(low, _mm512_load_si512(PLACES.data()), high));
}
#endif

// The binary16 numbers at `first` of eight blocks, as floats, each twice. The blocks may be read
// whole up to four bytes before their end.
template <uint32_t step>
HWY_INLINE void scales_of_eight(const std::byte *first, float *target) {
#if HWY_MAX_BYTES == 64 && HWY_ARCH_X86
    __m256i words = words_of_blocks<step, 0>(first);
    if constexpr (7 * step > 126) {
        // The last four of the blocks, if they are further apart.
        constexpr uint32_t LATER = HWY_MIN(4 * step, 8 * step - 132);
        static_assert(step % 2 == 0 && 3 * step <= 126 && 7 * step - LATER <= 126);
        // Unoptimised, the blend is a macro, which would take the comma for one of its own.
        const __m256i last_words = words_of_blocks<step, LATER>(first + LATER);
        words = _mm256_mask_blend_epi16(0xff00, words, last_words);
    }
    const float_tag d;
    const hn::Rebind<hwy::float16_t, float_tag> halves;
    hn::Store(hn::PromoteTo(d, hn::Vec<decltype(halves)>{words}), d, target);
#else
    floats_of_halves(four_halves(first, step), four_halves(first + 4 * step, step), target);
#endif
}

template <weight_type type>
HWY_INLINE void read_eight(const std::byte *block, weight_chunk &chunk) {
    constexpr size_t STEP = format_of(type).bytes;
    for (uint32_t g = 0; g < 8; g += 2)
        store_codes<type>(block + g * STEP, STEP, chunk.codes + 32 * g);
    if constexpr (type == weight_type::mxfp4_gguf) {
        // Half the scale, for twice the value: the exponent minus one. An exponent of 0 or 1 is
        // halved again.
        uint64_t exponents = 0;
        for (uint32_t g = 0; g < 8; ++g)
            exponents |= std::to_integer<uint64_t>(block[g * STEP]) << 8 * g;
        const sixteen_tag d;
        const auto twice = sixteen_of(exponents, exponents);
        scales_of_exponents(hn::InterleaveLower(d, twice, twice), chunk.scales);
    } else {
        scales_of_eight<STEP>(block, chunk.scales);
        if constexpr (code_format_of(type).offsets) scales_of_eight<STEP>(block + 2, chunk.offsets);
    }
}

template <weight_type type>
HWY_INLINE void read_small(const std::byte *block, const std::byte *end, uint32_t groups,
                           weight_chunk &chunk) {
    constexpr weight_format FORMAT = format_of(type);
    static_assert(FORMAT.block == 32);
    if (groups == 8) return read_eight<type>(block, chunk);
    // Fewer groups than eight. The memory behind them is read as well, or the zeros of a copy.
    if (static_cast<size_t>(end - block) >= 8 * FORMAT.bytes) {
        read_eight<type>(block, chunk);
    } else {
        alignas(64) std::byte copy[8 * FORMAT.bytes] = {};
        std::memcpy(copy, block, size_t{groups} * FORMAT.bytes);
        read_eight<type>(copy, chunk);
    }
    const float_tag d;
    for (uint32_t k = 0; k < CHUNK_BLOCKS; k += LANES) {
        const auto present = hn::FirstN(d, HWY_MAX(2 * groups, k) - k);
        hn::Store(hn::IfThenElseZero(present, hn::Load(d, chunk.scales + k)), d, chunk.scales + k);
        if constexpr (code_format_of(type).offsets)
            hn::Store(hn::IfThenElseZero(present, hn::Load(d, chunk.offsets + k)), d,
                      chunk.offsets + k);
    }
}

// Takes two bits of 256 values from 64 bytes. Calls visit(place in the 32 bytes, first value,
// its codes, the codes 32 further on).
template <class Visit>
HWY_INLINE void visit_two_bits(const std::byte *source, Visit &&visit) {
    for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t i = 0; i < 32; i += CODES) {
            const code_vector four = load_codes(source + 32 * half + i);
            const code_vector mask = same_code(3);
            visit(i, 128 * half + i, hn::And(four, mask), hn::And(hn::ShiftRight<2>(four), mask));
            visit(i, 128 * half + 64 + i, hn::And(hn::ShiftRight<4>(four), mask),
                  hn::ShiftRight<6>(four));
        }
}

HWY_INLINE void read_q2_k(const std::byte *block, weight_chunk &chunk) {
    visit_two_bits(block + 16, [&](uint32_t, uint32_t first, code_vector a, code_vector b)
                                   HWY_ATTR { store_two(a, b, chunk.codes + first); });
    const sixteen_tag d;
    const auto packed = hn::LoadU(d, reinterpret_cast<const uint8_t *>(block));
    floats_of_bytes<uint8_t>(hn::And(packed, hn::Set(d, uint8_t{15})), half_number(block + 80),
                             chunk.scales);
    floats_of_bytes<uint8_t>(hn::ShiftRight<4>(packed), -half_number(block + 82), chunk.offsets);
}

HWY_INLINE void read_q3_k(const std::byte *block, weight_chunk &chunk) {
    // The bit of a value's group of 32, as a 4.
    const auto high_bits = [&](uint32_t place, uint32_t group) HWY_ATTR {
        const code_tag d;
        const code_vector bit = same_code(1u << group), high = load_codes(block + place);
        return hn::And(hn::VecFromMask(d, hn::Eq(hn::And(high, bit), bit)), same_code(4));
    };
    visit_two_bits(block + 32,
                   [&](uint32_t place, uint32_t first, code_vector a, code_vector b) HWY_ATTR {
                       store_two(hn::Or(a, high_bits(place, first / 32)),
                                 hn::Or(b, high_bits(place, first / 32 + 1)), chunk.codes + first);
                   });
    const uint32_t low[2] = {word_at(block + 96), word_at(block + 100)};
    const uint32_t high = word_at(block + 104);
    uint64_t scales[4];
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t tops = high >> 2 * i & 0x03030303;
        const uint32_t six = (low[i % 2] >> i / 2 * 4 & 0x0f0f0f0f) | tops << 4;
        // Subtracts 32 from each byte. A byte whose top bit is set first gives no borrow.
        scales[i] = ((six | 0x80808080) - 0x20202020) ^ 0x80808080;
    }
    floats_of_bytes<int8_t>(sixteen_of(scales[0] | scales[1] << 32, scales[2] | scales[3] << 32),
                            half_number(block + 108), chunk.scales);
}

// Six-bit scales and minimums of the eight groups of Q4_K and Q5_K.
HWY_INLINE void scales_of_k(const std::byte *block, weight_chunk &chunk) {
    const uint32_t a = word_at(block + 4), b = word_at(block + 8), c = word_at(block + 12);
    const uint64_t scales_low = a & 0x3f3f3f3f, least_low = b & 0x3f3f3f3f;
    const uint64_t scales_high = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
    const uint64_t least_high = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
    const sixteen_tag d;
    const auto packed = sixteen_of(scales_low | scales_high << 32, least_low | least_high << 32);
    floats_of_bytes<uint8_t>(hn::InterleaveLower(d, packed, packed), half_number(block),
                             chunk.scales);
    floats_of_bytes<uint8_t>(hn::InterleaveUpper(d, packed, packed), -half_number(block + 2),
                             chunk.offsets);
}

HWY_INLINE void read_q4_k(const std::byte *block, weight_chunk &chunk) {
    scales_of_k(block, chunk);
#if HWY_MAX_BYTES == 64
    for (uint32_t pair = 0; pair < 4; ++pair)
        store_wide(nibbles_of_halves(load_twice(block + 16 + 32 * pair)), chunk.codes + 64 * pair);
#else
    for (uint32_t pair = 0; pair < 4; ++pair)
        for (uint32_t i = 0; i < 32; i += CODES) {
            const code_vector packed = load_codes(block + 16 + 32 * pair + i);
            store_two(hn::And(packed, same_code(15)), hn::ShiftRight<4>(packed),
                      chunk.codes + 64 * pair + i);
        }
#endif
}

template <int pair>
HWY_INLINE void read_q5_k_pair(const std::byte *block, weight_chunk &chunk) {
    for (uint32_t i = 0; i < 32; i += CODES) {
        const code_vector packed = load_codes(block + 48 + 32 * pair + i);
        const code_vector high = hn::ShiftRight<2 * pair>(load_codes(block + 16 + i));
        const code_vector first = hn::And(high, same_code(1)), second = hn::And(high, same_code(2));
        store_two(hn::Or(hn::And(packed, same_code(15)), hn::ShiftLeft<4>(first)),
                  hn::Or(hn::ShiftRight<4>(packed), hn::ShiftLeft<3>(second)),
                  chunk.codes + 64 * pair + i);
    }
}
HWY_INLINE void read_q5_k(const std::byte *block, weight_chunk &chunk) {
    scales_of_k(block, chunk);
    read_q5_k_pair<0>(block, chunk);
    read_q5_k_pair<1>(block, chunk);
    read_q5_k_pair<2>(block, chunk);
    read_q5_k_pair<3>(block, chunk);
}

HWY_INLINE void codes_of_q6_k(const std::byte *block, uint8_t *target) {
#if HWY_MAX_BYTES == 64
    const wide_tag d;
    const word_tag words;
    alignas(64) static constexpr uint32_t UP[16] = {4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2};
    alignas(64) static constexpr uint32_t DOWN[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                                      2, 2, 2, 2, 2, 2, 2, 2};
    const auto low = hn::Set(d, uint8_t{15}), two = hn::Set(d, uint8_t{0x30});
    for (uint32_t half = 0; half < 2; ++half) {
        const auto packed = hn::LoadU(d, reinterpret_cast<const uint8_t *>(block) + 64 * half);
        const auto high = load_twice(block + 128 + 32 * half);
        const auto shifted_high = hn::Shl(hn::BitCast(words, high), hn::Load(words, UP));
        store_wide(hn::Or(hn::And(packed, low), hn::And(hn::BitCast(d, shifted_high), two)),
                   target + 128 * half);
        store_wide(hn::Or(hn::And(hn::ShiftRight<4>(packed), low), shifted<0x30>(high, DOWN)),
                   target + 128 * half + 64);
    }
#else
    const code_vector low = same_code(15), two = same_code(0x30);
    for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t i = 0; i < 32; i += CODES) {
            const code_vector a = load_codes(block + 64 * half + i);
            const code_vector b = load_codes(block + 64 * half + 32 + i);
            const code_vector high = load_codes(block + 128 + 32 * half + i);
            uint8_t *const target_codes = target + 128 * half + i;
            store_two(hn::Or(hn::And(a, low), hn::And(hn::ShiftLeft<4>(high), two)),
                      hn::Or(hn::And(b, low), hn::And(hn::ShiftLeft<2>(high), two)), target_codes);
            store_two(hn::Or(hn::ShiftRight<4>(a), hn::And(high, two)),
                      hn::Or(hn::ShiftRight<4>(b), hn::And(hn::ShiftRight<2>(high), two)),
                      target_codes + 64);
        }
#endif
}
HWY_INLINE void read_q6_k(const std::byte *block, weight_chunk &chunk) {
    codes_of_q6_k(block, chunk.codes);
    floats_of_bytes<int8_t>(
        hn::LoadU(sixteen_tag(), reinterpret_cast<const uint8_t *>(block) + 192),
        half_number(block + 208), chunk.scales);
}

HWY_INLINE void read_iq4_xs(const std::byte *block, weight_chunk &chunk) {
    const uint32_t low = word_at(block + 4), high = word_at(block) >> 16;
    uint64_t scales = 0;
    for (uint32_t g = 0; g < 8; g += 2)
        store_codes<weight_type::iq4_nl>(block + 6 + 16 * g, 16, chunk.codes + 32 * g);
    for (uint32_t g = 0; g < 8; ++g) {
        const uint32_t scale = ((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32;
        scales |= uint64_t{scale & 255} << 8 * g;
    }
    const auto scale_bytes = sixteen_of(scales, scales);
    floats_of_bytes<int8_t>(hn::InterleaveLower(sixteen_tag(), scale_bytes, scale_bytes),
                            half_number(block), chunk.scales);
}

template <weight_type type>
HWY_INLINE void read_chunk(const std::byte *row, const std::byte *end, uint32_t begin,
                           uint32_t count, weight_chunk &chunk) {
    constexpr weight_format FORMAT = format_of(type);
    const std::byte *const block = row + size_t{begin / FORMAT.block} * FORMAT.bytes;
    if constexpr (FORMAT.block == 32) {
        read_small<type>(block, end, count / 32, chunk);
    } else if constexpr (type == weight_type::q2_k) {
        read_q2_k(block, chunk);
    } else if constexpr (type == weight_type::q3_k) {
        read_q3_k(block, chunk);
    } else if constexpr (type == weight_type::q4_k) {
        read_q4_k(block, chunk);
    } else if constexpr (type == weight_type::q5_k) {
        read_q5_k(block, chunk);
    } else if constexpr (type == weight_type::q6_k) {
        read_q6_k(block, chunk);
    } else {
        static_assert(type == weight_type::iq4_xs);
        read_iq4_xs(block, chunk);
    }
}

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

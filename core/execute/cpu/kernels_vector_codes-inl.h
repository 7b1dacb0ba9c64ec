// kernels_vector_codes-inl.h - readers that make codes of eight bits, a scale and an offset of the
// formats whose values lie in groups (kernels_codes.h). Included once per instruction set with
// vectors.
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

// Codes are made 32 at a time at most, whatever the vectors hold.
using code_tag = hn::CappedTag<uint8_t, 32>;
using code_vector = hn::Vec<code_tag>;
using sixteen_tag = hn::CappedTag<uint8_t, 16>;
constexpr uint32_t CODES = HWY_LANES(uint8_t) >= 32 ? 32 : 16;

HWY_INLINE code_vector load_codes(const std::byte *from) {
    return hn::LoadU(code_tag(), reinterpret_cast<const uint8_t *>(from));
}
HWY_INLINE code_vector same_code(uint32_t value) {
    return hn::Set(code_tag(), static_cast<uint8_t>(value));
}
// The same 16 bytes in every 16 of a vector.
HWY_INLINE code_vector load_sixteen(const void *from) {
    return hn::LoadDup128(code_tag(), static_cast<const uint8_t *>(from));
}

// Calls made(first, codes) for the 32 nibbles of 16 bytes, the low ones first.
template <class Made>
HWY_INLINE void each_nibbles(const std::byte *from, Made &&made) {
    const code_tag d;
    if constexpr (CODES == 32) {
        alignas(32) static constexpr uint32_t SHIFTS[8] = {0, 0, 0, 0, 4, 4, 4, 4};
        const hn::Repartition<uint32_t, code_tag> words;
        const auto both = hn::BitCast(words, load_sixteen(from));
        const auto codes = hn::BitCast(d, hn::Shr(both, hn::Load(words, SHIFTS)));
        made(0u, hn::And(codes, same_code(15)));
    } else {
        const auto both = load_codes(from);
        made(0u, hn::And(both, same_code(15)));
        made(16u, hn::ShiftRight<4>(both));
    }
}
// 0 or `value` where a bit of the 32 is none or one: of codes [first, first + CODES).
HWY_INLINE code_vector bits_of_word(uint32_t word, uint32_t first, uint32_t value) {
    alignas(32) static constexpr uint8_t PLACE[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                                      1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                                      2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    alignas(32) static constexpr uint8_t BIT[32] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4,
                                                    8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32,
                                                    64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const code_tag d;
    const hn::Repartition<uint32_t, code_tag> words;
    const auto spread =
        hn::TableLookupBytes(hn::BitCast(d, hn::Set(words, word)), hn::Load(d, PLACE + first));
    const auto bit = hn::Load(d, BIT + first);
    return hn::And(hn::VecFromMask(d, hn::Eq(hn::And(spread, bit), bit)), same_code(value));
}
HWY_INLINE uint32_t word_at(const std::byte *from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// Sixteen of each, from eight: every one twice.
HWY_INLINE void floats_of_halves(const uint16_t *eight, float *out) {
    const hn::CappedTag<uint16_t, 8> halves;
    const auto all = hn::LoadU(halves, eight);
    alignas(64) uint16_t twice[16];
    hn::Store(hn::InterleaveLower(halves, all, all), halves, twice);
    hn::Store(hn::InterleaveUpper(halves, all, all), halves, twice + 8);
    const hn::Rebind<hwy::float16_t, float_tag> words;
    for (uint32_t i = 0; i < 16; i += LANES)
        hn::Store(hn::PromoteTo(float_tag(),
                                hn::Load(words, reinterpret_cast<const hwy::float16_t *>(twice) + i)),
                  float_tag(), out + i);
}
// Sixteen bytes times one number.
template <class Byte>
HWY_INLINE void floats_of_bytes(const Byte *sixteen, float by, float *out) {
    const float_tag d;
    const hn::Rebind<int32_t, float_tag> integers;
    const hn::Rebind<Byte, float_tag> bytes;
    for (uint32_t i = 0; i < 16; i += LANES) {
        const auto codes = hn::PromoteTo(integers, hn::LoadU(bytes, sixteen + i));
        hn::Store(hn::Mul(hn::ConvertTo(d, codes), hn::Set(d, by)), d, out + i);
    }
}
HWY_INLINE float half_number(const std::byte *from) {
    uint16_t word;
    std::memcpy(&word, from, sizeof word);
    const hn::CappedTag<float, 4> d;
    const hn::Rebind<uint16_t, decltype(d)> words;
    const hn::Rebind<hwy::float16_t, decltype(d)> halves;
    return hn::GetLane(hn::PromoteTo(d, hn::BitCast(halves, hn::Set(words, word))));
}

// The codes of one block of 32 values: of formats that have such.
template <weight_type type>
HWY_INLINE void codes_of_block(const std::byte *block, uint8_t *out) {
    const code_tag d;
    if constexpr (type == weight_type::q8_0) {
        for (uint32_t i = 0; i < 32; i += CODES)
            hn::Store(hn::Xor(load_codes(block + 2 + i), same_code(128)), d, out + i);
    } else if constexpr (type == weight_type::q5_0 || type == weight_type::q5_1) {
        constexpr uint32_t HIGH = type == weight_type::q5_0 ? 2 : 4;
        const uint32_t word = word_at(block + HIGH);
        each_nibbles(block + HIGH + 4, [&](uint32_t at, code_vector codes) HWY_ATTR {
            hn::Store(hn::Or(codes, bits_of_word(word, at, 16)), d, out + at);
        });
    } else if constexpr (type == weight_type::iq4_nl || type == weight_type::mxfp4_gguf) {
        alignas(16) static constexpr uint8_t IQ4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                        129, 141, 153, 166, 181, 197, 217, 241};
        alignas(16) static constexpr uint8_t FP4[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                                        16, 15, 14, 13, 12, 10, 8,  4};
        constexpr bool IS_IQ4 = type == weight_type::iq4_nl;
        const code_vector table = load_sixteen(IS_IQ4 ? IQ4 : FP4);
        each_nibbles(block + (IS_IQ4 ? 2 : 1), [&](uint32_t at, code_vector codes) HWY_ATTR {
            hn::Store(hn::TableLookupBytes(table, codes), d, out + at);
        });
    } else {
        each_nibbles(block + (type == weight_type::q4_0 ? 2 : 4),
                     [&](uint32_t at, code_vector codes) HWY_ATTR {
                         hn::Store(codes, d, out + at);
                     });
    }
}

template <weight_type type>
HWY_INLINE void read_small(const std::byte *block, uint32_t groups, weight_chunk &out) {
    constexpr weight_format FORMAT = format_of(type);
    static_assert(FORMAT.block == 32);
    alignas(16) uint16_t scales[8], offsets[8];
    alignas(64) float powers[8];
    if (groups < 8) {
        std::memset(&out, 0, sizeof out);
        std::memset(scales, 0, sizeof scales);
        std::memset(offsets, 0, sizeof offsets);
        std::memset(powers, 0, sizeof powers);
    }
    for (uint32_t g = 0; g < groups; ++g, block += FORMAT.bytes) {
        codes_of_block<type>(block, out.codes + 32 * g);
        if constexpr (type == weight_type::mxfp4_gguf) {
            // Half the scale, for twice the value.
            const auto e = std::to_integer<uint32_t>(block[0]);
            powers[g] = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        } else {
            std::memcpy(scales + g, block, 2);
            if constexpr (code_format_of(type).offsets) std::memcpy(offsets + g, block + 2, 2);
        }
    }
    if constexpr (type == weight_type::mxfp4_gguf) {
        for (uint32_t k = 0; k < CHUNK_BLOCKS; ++k) out.scales[k] = powers[k / 2];
    } else {
        floats_of_halves(scales, out.scales);
        if constexpr (code_format_of(type).offsets) floats_of_halves(offsets, out.offsets);
    }
}

// Two bits of 256 values from 64 bytes: calls made(first value, codes, place in the 32 bytes).
template <class Made>
HWY_INLINE void each_two_bits(const std::byte *from, Made &&made) {
    for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t i = 0; i < 32; i += CODES) {
            const code_vector four = load_codes(from + 32 * half + i);
            const code_vector mask = same_code(3);
            made(128 * half + i, hn::And(four, mask), i);
            made(128 * half + 32 + i, hn::And(hn::ShiftRight<2>(four), mask), i);
            made(128 * half + 64 + i, hn::And(hn::ShiftRight<4>(four), mask), i);
            made(128 * half + 96 + i, hn::ShiftRight<6>(four), i);
        }
}

HWY_INLINE void read_q2_k(const std::byte *block, weight_chunk &out) {
    each_two_bits(block + 16, [&](uint32_t at, code_vector codes, uint32_t) HWY_ATTR {
        hn::Store(codes, code_tag(), out.codes + at);
    });
    const sixteen_tag d;
    const auto both = hn::LoadU(d, reinterpret_cast<const uint8_t *>(block));
    alignas(16) uint8_t scales[16], least[16];
    hn::Store(hn::And(both, hn::Set(d, uint8_t{15})), d, scales);
    hn::Store(hn::ShiftRight<4>(both), d, least);
    floats_of_bytes(scales, half_number(block + 80), out.scales);
    floats_of_bytes(least, -half_number(block + 82), out.offsets);
}

HWY_INLINE void read_q3_k(const std::byte *block, weight_chunk &out) {
    each_two_bits(block + 32, [&](uint32_t at, code_vector codes, uint32_t place) HWY_ATTR {
        // The bit of the value's group of 32, as a 4.
        const code_vector bit = same_code(1u << at / 32), high = load_codes(block + place);
        const code_tag d;
        const code_vector four =
            hn::And(hn::VecFromMask(d, hn::Eq(hn::And(high, bit), bit)), same_code(4));
        hn::Store(hn::Or(codes, four), d, out.codes + at);
    });
    int8_t scales[16];
    const uint32_t low[2] = {word_at(block + 96), word_at(block + 100)};
    const uint32_t high = word_at(block + 104);
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t tops = high >> 2 * i & 0x03030303;
        const uint32_t four = (low[i % 2] >> i / 2 * 4 & 0x0f0f0f0f) | tops << 4;
        // Six bits, less 32, byte by byte: no borrow leaves a byte whose top bit is set before.
        const uint32_t less = ((four | 0x80808080) - 0x20202020) ^ 0x80808080;
        std::memcpy(scales + 4 * i, &less, 4);
    }
    floats_of_bytes(scales, half_number(block + 108), out.scales);
}

// Six-bit scales and minimums of the eight groups of Q4_K and Q5_K.
HWY_INLINE void scales_of_k(const std::byte *block, weight_chunk &out) {
    const uint32_t a = word_at(block + 4), b = word_at(block + 8), c = word_at(block + 12);
    const uint32_t packed[4] = {
        a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4, b & 0x3f3f3f3f,
        (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4};
    const sixteen_tag d;
    const auto all = hn::LoadU(d, reinterpret_cast<const uint8_t *>(packed));
    alignas(16) uint8_t scales[16], least[16];
    hn::Store(hn::InterleaveLower(d, all, all), d, scales);
    hn::Store(hn::InterleaveUpper(d, all, all), d, least);
    floats_of_bytes(scales, half_number(block), out.scales);
    floats_of_bytes(least, -half_number(block + 2), out.offsets);
}

HWY_INLINE void read_q4_k(const std::byte *block, weight_chunk &out) {
    scales_of_k(block, out);
    for (uint32_t pair = 0; pair < 4; ++pair)
        for (uint32_t i = 0; i < 32; i += CODES) {
            const code_vector both = load_codes(block + 16 + 32 * pair + i);
            hn::Store(hn::And(both, same_code(15)), code_tag(), out.codes + 64 * pair + i);
            hn::Store(hn::ShiftRight<4>(both), code_tag(), out.codes + 64 * pair + 32 + i);
        }
}

template <int pair>
HWY_INLINE void read_q5_k_pair(const std::byte *block, weight_chunk &out) {
    const code_tag d;
    for (uint32_t i = 0; i < 32; i += CODES) {
        const code_vector both = load_codes(block + 48 + 32 * pair + i);
        const code_vector high = hn::ShiftRight<2 * pair>(load_codes(block + 16 + i));
        const code_vector first = hn::And(high, same_code(1)), second = hn::And(high, same_code(2));
        hn::Store(hn::Or(hn::And(both, same_code(15)), hn::ShiftLeft<4>(first)), d,
                  out.codes + 64 * pair + i);
        hn::Store(hn::Or(hn::ShiftRight<4>(both), hn::ShiftLeft<3>(second)), d,
                  out.codes + 64 * pair + 32 + i);
    }
}
HWY_INLINE void read_q5_k(const std::byte *block, weight_chunk &out) {
    scales_of_k(block, out);
    read_q5_k_pair<0>(block, out);
    read_q5_k_pair<1>(block, out);
    read_q5_k_pair<2>(block, out);
    read_q5_k_pair<3>(block, out);
}

HWY_INLINE void read_q6_k(const std::byte *block, weight_chunk &out) {
    const code_tag d;
    const code_vector low = same_code(15), two = same_code(0x30);
    for (uint32_t half = 0; half < 2; ++half)
        for (uint32_t i = 0; i < 32; i += CODES) {
            const code_vector a = load_codes(block + 64 * half + i);
            const code_vector b = load_codes(block + 64 * half + 32 + i);
            const code_vector high = load_codes(block + 128 + 32 * half + i);
            uint8_t *const to = out.codes + 128 * half + i;
            hn::Store(hn::Or(hn::And(a, low), hn::And(hn::ShiftLeft<4>(high), two)), d, to);
            hn::Store(hn::Or(hn::And(b, low), hn::And(hn::ShiftLeft<2>(high), two)), d, to + 32);
            hn::Store(hn::Or(hn::ShiftRight<4>(a), hn::And(high, two)), d, to + 64);
            hn::Store(hn::Or(hn::ShiftRight<4>(b), hn::And(hn::ShiftRight<2>(high), two)), d,
                      to + 96);
        }
    floats_of_bytes(reinterpret_cast<const int8_t *>(block) + 192, half_number(block + 208),
                    out.scales);
}

HWY_INLINE void read_iq4_xs(const std::byte *block, weight_chunk &out) {
    int8_t scales[16];
    const uint32_t low = word_at(block + 4), high = word_at(block) >> 16;
    for (uint32_t g = 0; g < 8; ++g) {
        codes_of_block<weight_type::iq4_nl>(block + 6 + 16 * g, out.codes + 32 * g);
        const uint32_t own = (low >> 4 * g & 15) | (high >> 2 * g & 3) << 4;
        scales[2 * g] = scales[2 * g + 1] = static_cast<int8_t>(static_cast<int32_t>(own) - 32);
    }
    floats_of_bytes(scales, half_number(block), out.scales);
}

template <weight_type type>
HWY_INLINE void read_chunk(const std::byte *row, uint32_t begin, uint32_t count,
                           weight_chunk &out) {
    constexpr weight_format FORMAT = format_of(type);
    const std::byte *const block = row + size_t{begin / FORMAT.block} * FORMAT.bytes;
    if constexpr (FORMAT.block == 32) {
        read_small<type>(block, count / 32, out);
    } else if constexpr (type == weight_type::q2_k) {
        read_q2_k(block, out);
    } else if constexpr (type == weight_type::q3_k) {
        read_q3_k(block, out);
    } else if constexpr (type == weight_type::q4_k) {
        read_q4_k(block, out);
    } else if constexpr (type == weight_type::q5_k) {
        read_q5_k(block, out);
    } else if constexpr (type == weight_type::q6_k) {
        read_q6_k(block, out);
    } else {
        static_assert(type == weight_type::iq4_xs);
        read_iq4_xs(block, out);
    }
}

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

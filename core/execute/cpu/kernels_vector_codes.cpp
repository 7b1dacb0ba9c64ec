// kernels_vector_codes.cpp - sums of products of small integers (kernels_codes.h): rows for few
// tokens, panels for many.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_codes.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_codes.h"
#include "core/execute/cpu/kernels_codes_plain.h"
#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

using integer_tag = hn::Rebind<int32_t, float_tag>;
using integers = hn::Vec<integer_tag>;
using byte_tag = hn::Repartition<uint8_t, float_tag>;
using bytes = hn::Vec<byte_tag>;
constexpr uint32_t VECTORS = CHUNK_BLOCKS / LANES;  // of 16 floats

// sum + the four products of each word's bytes, those of `a` without and of `b` with a sign; never
// rounds nor saturates.
struct by_halves {
    static HWY_INLINE integers dot(integers sum, bytes a, bytes b) {
        const hn::Repartition<int16_t, float_tag> shorts;
        const hn::Repartition<uint16_t, float_tag> words;
        const auto even_a = hn::And(hn::BitCast(words, a), hn::Set(words, uint16_t{0xff}));
        const auto odd_a = hn::ShiftRight<8>(hn::BitCast(words, a));
        const auto odd_b = hn::ShiftRight<8>(hn::BitCast(shorts, b));
        const auto even_b = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(shorts, b)));
        return hn::Add(sum, hn::Add(pairs(hn::BitCast(shorts, even_a), even_b),
                                    pairs(hn::BitCast(shorts, odd_a), odd_b)));
    }

private:
    template <class Shorts>
    static HWY_INLINE integers pairs(Shorts a, Shorts b) {
        const integer_tag d;
#if HWY_ARCH_X86
        auto unused = hn::Zero(d);
        return hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), unused);
#else
        // Each product fits 16 bits.
        const auto product = hn::BitCast(d, hn::Mul(a, b));
        return hn::Add(hn::ShiftRight<16>(product), hn::ShiftRight<16>(hn::ShiftLeft<16>(product)));
#endif
    }
};
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// AVX512_VNNI, which no target of older Highways names: the processor is asked (table()).
struct by_quads {
    static HWY_INLINE integers dot(integers sum, bytes a, bytes b) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
        return sum;
    }
};
#endif

HWY_INLINE bytes load_bytes_of(const void *from) {
    return hn::LoadU(byte_tag(), static_cast<const uint8_t *>(from));
}

// The sums of the words of each 16 bytes of four vectors, of all that a chunk has in their order.
HWY_INLINE integers sums_of_blocks(integers a, integers b, integers c, integers d4) {
    const integer_tag d;
    const hn::Repartition<uint64_t, float_tag> wide;
    const auto ac = hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));
    const auto bd = hn::Add(hn::InterleaveLower(d, b, d4), hn::InterleaveUpper(d, b, d4));
    (void)wide;
    const auto all = hn::Add(hn::InterleaveLower(d, ac, bd), hn::InterleaveUpper(d, ac, bd));
    if constexpr (LANES == 16) {
        alignas(64) static constexpr int32_t ORDER[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                          2, 6, 10, 14, 3, 7, 11, 15};
        return hn::TableLookupLanes(all, hn::SetTableIndices(d, ORDER));
    } else if constexpr (LANES == 8) {
        alignas(32) static constexpr int32_t ORDER[8] = {0, 4, 1, 5, 2, 6, 3, 7};
        return hn::TableLookupLanes(all, hn::SetTableIndices(d, ORDER));
    } else {
        return all;
    }
}

// chains += the chunk.
template <weight_type type, class Dot>
HWY_INLINE void add_chunk(const weight_chunk &weights, const activation_chunk &input,
                          float *chains) {
    constexpr code_format FORMAT = code_format_of(type);
    const float_tag d;
    const integer_tag whole;
    for (uint32_t i = 0; i < VECTORS; ++i) {
        integers sums[4];
        for (uint32_t r = 0; r < 4; ++r) {
            const uint32_t at = (4 * i + r) * 4 * LANES;
            sums[r] = Dot::dot(hn::Zero(whole), load_bytes_of(weights.codes + at),
                               load_bytes_of(input.codes + at));
        }
        auto sum = sums_of_blocks(sums[0], sums[1], sums[2], sums[3]);
        const uint32_t lane = i * LANES;
        if constexpr (FORMAT.zero != 0)
            sum = hn::Sub(sum, hn::ShiftLeft<std::countr_zero(FORMAT.zero)>(
                                   hn::Load(whole, input.counts + lane)));
        const auto scale =
            hn::Mul(hn::Load(d, weights.scales + lane), hn::Load(d, input.scales + lane));
        auto chain = hn::MulAdd(hn::ConvertTo(d, sum), scale, hn::Load(d, chains + lane));
        if constexpr (FORMAT.offsets)
            chain = hn::MulAdd(hn::Load(d, weights.offsets + lane), hn::Load(d, input.sums + lane),
                               chain);
        hn::Store(chain, d, chains + lane);
    }
}

// out[row] += the chains of each of 16 rows, the first chain first.
HWY_INLINE void add_chains(const float (*chains)[CHUNK_BLOCKS], float *out) {
    const float_tag d;
    for (uint32_t row = 0; row < CODE_ROWS; row += LANES) {
        auto total = hn::Zero(d);
        for (uint32_t at = 0; at < CHUNK_BLOCKS; at += LANES) {
            float_vector v[LANES];
            for (uint32_t r = 0; r < LANES; ++r) v[r] = hn::Load(d, chains[row + r] + at);
            turn_round(d, v);
            for (uint32_t k = 0; k < LANES; ++k) total = hn::Add(total, v[k]);
        }
        hn::Store(hn::Add(hn::Load(d, out + row), total), d, out + row);
    }
}

// How far ahead weights are asked for, as in kernels_vector_rows.cpp.
constexpr uint64_t AHEAD_BYTES = 8192;

// Parts of a row for which chains are kept until sixteen rows have theirs.
constexpr uint32_t PARTS = 8;
struct alignas(64) chain_store {
    float of[PARTS][STREAM_TOKENS_MAX][CODE_ROWS][CHUNK_BLOCKS];
};

template <weight_type type, class Dot>
HWY_INLINE void run_row(const code_task &task, const code_layout &cut, const std::byte *row,
                        uint32_t place, uint32_t first, uint32_t last, chain_store &chains) {
    constexpr weight_format FORMAT = format_of(type);
    const std::byte *const end = codes_end(*task.weights);
    weight_chunk weights;
    for (uint32_t part = first; part < last; ++part) {
        const uint32_t begin = part * cut.part, columns = cut.columns_of(part);
        for (uint32_t t = 0; t < task.tokens; ++t)
            std::memset(chains.of[part - first][t][place], 0, sizeof chains.of[0][0][0]);
        const size_t chunk = size_t{part} * cut.chunks_of_part();
        for (uint32_t at = 0, c = 0; at < columns; at += CHUNK_COLUMNS, ++c) {
            const std::byte *const from = row + size_t{begin + at} / FORMAT.block * FORMAT.bytes;
            for (uint64_t line = 0; line < CHUNK_COLUMNS * FORMAT.bytes / FORMAT.block; line += 64)
                hwy::Prefetch(reinterpret_cast<const uint8_t *>(from) + AHEAD_BYTES + line);
            read_chunk<type>(row, end, begin + at, HWY_MIN(CHUNK_COLUMNS, columns - at), weights);
            for (uint32_t t = 0; t < task.tokens; ++t)
                add_chunk<type, Dot>(weights, task.inputs[t][chunk + c],
                                     chains.of[part - first][t][place]);
        }
    }
}

template <weight_type type, class Dot>
void multiply_type(const code_task &task) {
    const matrix &weights = *task.weights;
    const code_layout cut{weights.columns, task.part, shared_columns(type)};
    const uint32_t parts = cut.parts();
    chain_store chains;
    for (uint32_t row = 0; row < task.count; row += CODE_ROWS) {
        const uint32_t count = HWY_MIN(CODE_ROWS, task.count - row);
        alignas(64) float totals[STREAM_TOKENS_MAX][CODE_ROWS] = {};
        for (uint32_t t = 0; t < task.tokens; ++t)
            for (uint32_t r = 0; r < count; ++r) {
                if (task.add) totals[t][r] = task.output[t * task.output_stride + row + r];
                if (task.start) totals[t][r] += task.start[row + r];
            }
        for (uint32_t part = 0; part < parts; part += PARTS) {
            const uint32_t last = HWY_MIN(part + PARTS, parts);
            for (uint32_t r = 0; r < CODE_ROWS; ++r) {
                const std::byte *const at =
                    weights.data + (uint64_t{task.first} + row + r) * weights.row_bytes;
                if (r < count) {
                    run_row<type, Dot>(task, cut, at, r, part, last, chains);
                    continue;
                }
                for (uint32_t p = part; p < last; ++p)
                    for (uint32_t t = 0; t < task.tokens; ++t)
                        std::memset(chains.of[p - part][t][r], 0, sizeof chains.of[0][0][0]);
            }
            for (uint32_t p = part; p < last; ++p)
                for (uint32_t t = 0; t < task.tokens; ++t)
                    add_chains(chains.of[p - part][t], totals[t]);
        }
        for (uint32_t t = 0; t < task.tokens; ++t)
            for (uint32_t r = 0; r < count; ++r)
                task.output[t * task.output_stride + row + r] = totals[t][r];
    }
}

// With the format as a constant.
constexpr bool has_codes(weight_type type) { return practice_of(type) == activation_form::codes; }

template <class Dot>
void multiply(const code_task &task) {
    with_type_of<has_codes>(task.weights->type,
                            [&](auto type) HWY_ATTR { multiply_type<type(), Dot>(task); });
}

template <weight_type type>
void read(const std::byte *row, const std::byte *end, uint32_t begin, uint32_t count,
          weight_chunk &out) {
    read_chunk<type>(row, end, begin, count, out);
}

// 16 columns of 16 rows as words side by side.
template <class Dot>
HWY_INLINE void turn_block(const weight_chunk *rows, uint32_t k, uint32_t zero,
                           code_panel_block &out) {
    const word_tag d;
    const integer_tag whole;
    const byte_tag b;
    // Four rows at a time: of each 16 bytes, which are turned round as four words.
    for (uint32_t r = 0; r < CODE_ROWS; ++r)
        for (uint32_t word = 0; word < 4; ++word)
            std::memcpy(&out.words[word][r], rows[r].codes + CODE_BLOCK * k + 4 * word, 4);
    for (uint32_t lane = 0; lane < CODE_ROWS; lane += LANES) {
        auto sum = hn::Zero(whole);
        for (uint32_t word = 0; word < 4; ++word) {
            const auto codes = hn::Sub(hn::BitCast(b, hn::Load(d, out.words[word] + lane)),
                                       hn::Set(b, static_cast<uint8_t>(zero)));
            hn::Store(hn::BitCast(d, codes), d, out.words[word] + lane);
            sum = Dot::dot(sum, hn::Set(b, uint8_t{128}), codes);
        }
        hn::Store(hn::Neg(sum), whole, out.starts + lane);
    }
    for (uint32_t r = 0; r < CODE_ROWS; ++r) {
        out.scales[r] = rows[r].scales[k];
        out.offsets[r] = rows[r].offsets[k];
    }
}

template <class Dot>
void pack(const matrix &from, uint32_t first, uint32_t begin, uint32_t count,
          code_panel_block *panel) {
    const code_format format = code_format_of(from.type);
    const auto reader = vector_codes().read[static_cast<size_t>(from.type)];
    const uint32_t chunks = (count + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    weight_chunk rows[CODE_ROWS];
    if (!format.offsets)
        for (weight_chunk &row : rows) std::memset(row.offsets, 0, sizeof row.offsets);
    for (uint32_t c = 0; c < chunks; ++c) {
        const uint32_t at = c * CHUNK_COLUMNS, columns = HWY_MIN(CHUNK_COLUMNS, count - at);
        for (uint32_t r = 0; r < CODE_ROWS; ++r) {
            const uint64_t row = HWY_MIN(first + r, from.rows - 1);
            reader(from.data + row * from.row_bytes, codes_end(from), begin + at, columns, rows[r]);
        }
        for (uint32_t k = 0; k < columns / CODE_BLOCK; ++k)
            turn_block<Dot>(rows, k, format.zero, panel[size_t{k} * chunks + c]);
    }
}

constexpr uint32_t TILE_TOKENS = LANES == 16 ? CODE_TOKENS_MAX : 4;

template <class Dot, bool offsets, uint32_t tokens>
void run_tile(const code_tile_task &task, uint32_t lane) {
    const float_tag d;
    const integer_tag whole;
    const word_tag words;
    const byte_tag b;
    const uint32_t chunks = (task.columns + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    const uint32_t blocks = task.columns / CODE_BLOCK;
    float_vector total[tokens];
    for (uint32_t t = 0; t < tokens; ++t) total[t] = hn::Zero(d);
    for (uint32_t k = 0; k < CHUNK_BLOCKS; ++k) {
        float_vector chain[tokens];
        for (uint32_t t = 0; t < tokens; ++t) chain[t] = hn::Zero(d);
        for (uint32_t c = 0; c < chunks && c * CHUNK_BLOCKS + k < blocks; ++c) {
            const code_panel_block &by = task.panel[size_t{k} * chunks + c];
            const uint32_t *const input =
                task.input + (size_t{k} * chunks + c) * TILE_WORDS * tokens;
            integers sum[tokens];
            const auto start = hn::Load(whole, by.starts + lane);
            for (uint32_t t = 0; t < tokens; ++t) sum[t] = start;
            for (uint32_t word = 0; word < 4; ++word) {
                const auto codes = hn::BitCast(b, hn::Load(words, by.words[word] + lane));
                for (uint32_t t = 0; t < tokens; ++t)
                    sum[t] = Dot::dot(
                        sum[t], hn::BitCast(b, hn::Set(words, input[word * tokens + t])), codes);
            }
            const auto *const scales = reinterpret_cast<const float *>(input + 4 * tokens);
            const auto scale = hn::Load(d, by.scales + lane);
            for (uint32_t t = 0; t < tokens; ++t)
                chain[t] = hn::MulAdd(hn::ConvertTo(d, sum[t]),
                                      hn::Mul(scale, hn::Set(d, scales[t])), chain[t]);
            if constexpr (offsets) {
                const auto offset = hn::Load(d, by.offsets + lane);
                for (uint32_t t = 0; t < tokens; ++t)
                    chain[t] = hn::MulAdd(offset, hn::Set(d, scales[tokens + t]), chain[t]);
            }
        }
        for (uint32_t t = 0; t < tokens; ++t) total[t] = hn::Add(total[t], chain[t]);
    }
    for (uint32_t t = 0; t < tokens; ++t) {
        float *const to = task.output + t * task.output_stride + lane;
        auto before = task.add ? hn::LoadU(d, to) : hn::Zero(d);
        if (task.start) before = hn::Add(before, hn::LoadU(d, task.start + lane));
        hn::StoreU(hn::Add(before, total[t]), d, to);
    }
}

template <class Dot, uint32_t tokens>
void choose_tile(const code_tile_task &task) {
    if constexpr (tokens > 1) {
        if (task.tokens < tokens) return choose_tile<Dot, tokens - 1>(task);
    }
    for (uint32_t lane = 0; lane < CODE_ROWS; lane += LANES)
        if (task.offsets)
            run_tile<Dot, true, tokens>(task, lane);
        else
            run_tile<Dot, false, tokens>(task, lane);
}
template <class Dot>
void tile(const code_tile_task &task) {
    choose_tile<Dot, TILE_TOKENS>(task);
}

template <uint32_t count>
HWY_INLINE void round_of(const float *from, activation_chunk *to, uint32_t block) {
    constexpr uint32_t ALL = count / LANES, EACH = CODE_BLOCK / LANES;
    const float_tag d;
    const integer_tag whole;
    auto most = hn::Zero(d), odd = hn::Zero(d);
    float_vector values[ALL];
    for (uint32_t i = 0; i < ALL; ++i) {
        values[i] = hn::LoadU(d, from + i * LANES);
        most = hn::Max(most, hn::Abs(values[i]));
        odd = hn::Add(odd, hn::Sub(values[i], values[i]));  // zeros, or no number
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
    const float none = hn::GetLane(hn::SumOfLanes(d, odd));
    const code_rounding by = code_rounding_of(count, largest, none);
    int32_t counts[count / CODE_BLOCK];
    for (uint32_t half = 0; half < count / CODE_BLOCK; ++half) {
        auto sum = hn::Zero(whole);
        for (uint32_t i = half * EACH; i < (half + 1) * EACH; ++i) {
            // What is no number became none as a scale.
            const auto code = none == 0 ? hn::NearestInt(hn::Mul(values[i], hn::Set(d, by.inverse)))
                                        : hn::Zero(whole);
            sum = hn::Add(sum, code);
            const hn::Rebind<int8_t, float_tag> small;
            hn::StoreU(hn::DemoteTo(small, code), small,
                       to->codes + CODE_BLOCK * block + i * LANES);
        }
        counts[half] = hn::GetLane(hn::SumOfLanes(whole, sum));
    }
    note_rounding(by, count, counts, to, block);
}
void round_some(const float *from, uint32_t count, activation_chunk *to, uint32_t block) {
    if (count == CODE_BLOCK)
        round_of<CODE_BLOCK>(from, to, block);
    else
        round_of<2 * CODE_BLOCK>(from, to, block);
}

template <class Dot, size_t... index>
constexpr code_kernels kernels_of(std::index_sequence<index...>) {
    code_kernels made{round_some, multiply<Dot>, {}, pack<Dot>, tile<Dot>, TILE_TOKENS};
    const auto add = [&]<size_t number>() {
        constexpr weight_type type = weight_formats[number].type;
        if constexpr (has_codes(type)) made.read[number] = read<type>;
    };
    (add.template operator()<index>(), ...);
    return made;
}

template <class Dot>
const code_kernels *table_of() {
    static constexpr code_kernels KERNELS =
        kernels_of<Dot>(std::make_index_sequence<weight_format_count>());
    return &KERNELS;
}

const code_kernels *table() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if (__builtin_cpu_supports("avx512vnni")) return table_of<by_quads>();
#endif
    return table_of<by_halves>();
}

#else

const code_kernels *table() { return &plain_codes(); }

#endif

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
namespace {
HWY_EXPORT(table);
}  // namespace
const code_kernels &vector_codes() { return *HWY_DYNAMIC_DISPATCH(table)(); }
}  // namespace moorage::core
#endif

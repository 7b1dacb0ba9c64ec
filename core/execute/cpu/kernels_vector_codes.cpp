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
#include "core/execute/cpu/kernels_vector_choice.h"
#include "core/execute/cpu/kernels_vector_codes-inl.h"

// Whether ReorderWidenMulAccumulate adds neighbours in each lane: vectors that are emulated do not.
#define ADDS_PAIRS (HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128)

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
struct dot_by_halves {
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
#if ADDS_PAIRS
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
struct dot_by_quads {
    static HWY_INLINE integers dot(integers sum, bytes a, bytes b) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
        return sum;
    }
};
#endif

HWY_INLINE bytes load_byte_vector(const void *source) {
    return hn::LoadU(byte_tag(), static_cast<const uint8_t *>(source));
}

// The sums of the words of each 16 bytes of four vectors, in each 16 bytes: of a, b, c and e.
// `most`: of the codes in these sums.
template <uint32_t most>
HWY_INLINE integers sums_in_quarters(integers a, integers b, integers c, integers e) {
    const integer_tag d;
#if ADDS_PAIRS
    // Sums of pairs of what fits 16 bits.
    const auto pairs = [](integers first, integers second) HWY_ATTR {
        const hn::Repartition<int16_t, float_tag> shorts;
        auto unused = hn::Zero(integer_tag());
        return hn::ReorderWidenMulAccumulate(
            integer_tag(), hn::ReorderDemote2To(shorts, first, second), hn::Set(shorts, int16_t{1}),
            hn::Zero(integer_tag()), unused);
    };
    constexpr uint32_t word_most = 4 * 127 * most;
    if constexpr (2 * word_most <= 0x7fff) return pairs(pairs(a, b), pairs(c, e));
#if HWY_MAX_BYTES == 64
    if constexpr (word_most <= 0x7fff) {
        const __m512 ab = _mm512_castsi512_ps(pairs(a, b).raw);
        const __m512 ce = _mm512_castsi512_ps(pairs(c, e).raw);
        return hn::Add(integers{_mm512_castps_si512(_mm512_shuffle_ps(ab, ce, 0x88))},
                       integers{_mm512_castps_si512(_mm512_shuffle_ps(ab, ce, 0xdd))});
    }
#endif
#endif
    const auto ac = hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));
    const auto be = hn::Add(hn::InterleaveLower(d, b, e), hn::InterleaveUpper(d, b, e));
    return hn::Add(hn::InterleaveLower(d, ac, be), hn::InterleaveUpper(d, ac, be));
}
// The same in the order of the blocks.
template <uint32_t most>
HWY_INLINE integers sums_of_blocks(const integers (&sums)[4]) {
    const integer_tag d;
    const auto quarters = sums_in_quarters<most>(sums[0], sums[1], sums[2], sums[3]);
    if constexpr (LANES == 16) {
        alignas(64) static constexpr int32_t ORDER[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                          2, 6, 10, 14, 3, 7, 11, 15};
        return hn::TableLookupLanes(quarters, hn::SetTableIndices(d, ORDER));
    } else if constexpr (LANES == 8) {
        alignas(32) static constexpr int32_t ORDER[8] = {0, 4, 1, 5, 2, 6, 3, 7};
        return hn::TableLookupLanes(quarters, hn::SetTableIndices(d, ORDER));
    } else {
        return quarters;
    }
}

// The chains of a row and a part.
struct chain_vectors {
    float_vector vectors[VECTORS];
};

// chains += the chunk.
template <weight_type type, class Dot>
HWY_INLINE void add_chunk(const weight_chunk &weights, const activation_chunk &input,
                          chain_vectors &chains) {
    constexpr code_format FORMAT = code_format_of(type);
    const float_tag d;
    const integer_tag whole;
    for (uint32_t i = 0; i < VECTORS; ++i) {
        integers sums[4];
        for (uint32_t r = 0; r < 4; ++r) {
            const uint32_t first = (4 * i + r) * 4 * LANES;
            sums[r] = Dot::dot(hn::Zero(whole), load_byte_vector(weights.codes + first),
                               load_byte_vector(input.codes + first));
        }
        auto sum = sums_of_blocks<FORMAT.largest>(sums);
        const uint32_t lane = i * LANES;
        if constexpr (FORMAT.zero != 0)
            sum = hn::Sub(sum, hn::ShiftLeft<std::countr_zero(FORMAT.zero)>(
                                   hn::Load(whole, input.counts + lane)));
        const auto scale =
            hn::Mul(hn::Load(d, weights.scales + lane), hn::Load(d, input.scales + lane));
        auto chain = hn::MulAdd(hn::ConvertTo(d, sum), scale, chains.vectors[i]);
        if constexpr (FORMAT.offsets)
            chain = hn::MulAdd(hn::Load(d, weights.offsets + lane), hn::Load(d, input.sums + lane),
                               chain);
        chains.vectors[i] = chain;
    }
}

// totals[row] += the chains of each of 16 rows, the first chain first; of `count` rows at least.
HWY_INLINE void add_chains(const float (*chains)[CHUNK_BLOCKS], uint32_t count, float *totals) {
    const float_tag d;
    for (uint32_t row = 0; row < CODE_ROWS; row += LANES) {
        auto total = hn::Zero(d);
        for (uint32_t chain = 0; chain < CHUNK_BLOCKS; chain += LANES) {
            float_vector v[LANES];
            for (uint32_t r = 0; r < LANES; ++r)
                v[r] = hn::Load(d, chains[HWY_MIN(row + r, count - 1)] + chain);
            transpose(d, v);
            for (uint32_t k = 0; k < LANES; ++k) total = hn::Add(total, v[k]);
        }
        hn::Store(hn::Add(hn::Load(d, totals + row), total), d, totals + row);
    }
}

// Parts of a row for which chains are kept until sixteen rows have theirs.
constexpr uint32_t PARTS = 8;
struct alignas(64) chain_store {
    float parts[PARTS][STREAM_TOKENS_MAX][CODE_ROWS][CHUNK_BLOCKS];
};

// Rows that meet the activations of one token at once, which are loaded for both.
constexpr uint32_t ROWS_ALONE = 2;

// One part of `rows` rows: their chains, from `place` on. The activations of a single token have a
// loop of their own, in which chains stay in registers.
template <weight_type type, class Dot, uint32_t rows>
HWY_INLINE void run_part(const code_task &task, const std::byte *const (&row_starts)[rows],
                         const std::byte *end, const code_layout &cut, uint32_t part,
                         uint32_t place, float (*target)[CODE_ROWS][CHUNK_BLOCKS]) {
    constexpr weight_format FORMAT = format_of(type);
    constexpr uint64_t CHUNK_BYTES = CHUNK_COLUMNS / FORMAT.block * FORMAT.bytes;
    constexpr bool ALONE = rows == ROWS_ALONE;
    const float_tag d;
    const uint32_t tokens = ALONE ? 1 : task.tokens, columns = cut.columns_of(part);
    uint64_t offset_bytes = uint64_t{part} * cut.part / FORMAT.block * FORMAT.bytes;
    size_t chunk = size_t{part} * cut.chunks_of_part();
    weight_chunk weights[rows];
    chain_vectors chains[ALONE ? 1 : STREAM_TOKENS_MAX][rows];
    for (uint32_t t = 0; t < tokens; ++t)
        for (chain_vectors &row : chains[t])
            for (float_vector &vector : row.vectors) vector = hn::Zero(d);
    const auto add = [&](uint32_t count) HWY_ATTR {
        for (uint32_t r = 0; r < rows; ++r) {
            for (uint64_t line = 0; line < CHUNK_BYTES; line += 64)
                prefetch_line(row_starts[r] + offset_bytes + AHEAD_BYTES + line);
            read_chunk<type>(row_starts[r] + offset_bytes, end, 0, count, weights[r]);
        }
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t r = 0; r < rows; ++r)
                add_chunk<type, Dot>(weights[r], task.inputs[t][chunk], chains[t][r]);
        offset_bytes += CHUNK_BYTES;
        ++chunk;
    };
    for (uint32_t left = columns / CHUNK_COLUMNS; left != 0; --left) add(CHUNK_COLUMNS);
    if constexpr (FORMAT.block < CHUNK_COLUMNS)
        if (columns % CHUNK_COLUMNS != 0) add(columns % CHUNK_COLUMNS);
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < rows; ++r)
            for (uint32_t i = 0; i < VECTORS; ++i)
                hn::Store(chains[t][r].vectors[i], d, target[t][place + r] + i * LANES);
}

// The parts [first, last) of at most sixteen rows from `row` of the task on. Rows beyond the last
// repeat the last one, and their chains are not used.
template <weight_type type, class Dot, uint32_t rows>
HWY_INLINE void run_rows(const code_task &task, const code_layout &cut, uint32_t row,
                         uint32_t count, uint32_t first, uint32_t last, chain_store &chains) {
    const matrix &weights = *task.weights;
    const std::byte *const end = codes_end(weights);
    for (uint32_t place = 0; place < count; place += rows) {
        const std::byte *row_starts[rows];
        for (uint32_t r = 0; r < rows; ++r)
            row_starts[r] =
                weights.data +
                (uint64_t{task.first} + row + HWY_MIN(place + r, count - 1)) * weights.row_bytes;
        for (uint32_t part = first; part < last; ++part)
            run_part<type, Dot, rows>(task, row_starts, end, cut, part, place,
                                      chains.parts[part - first]);
    }
}

template <weight_type type, class Dot, uint32_t rows>
void multiply_rows(const code_task &task) {
    const matrix &weights = *task.weights;
    const code_layout cut{weights.columns, task.part, shared_columns(type)};
    const uint32_t parts = cut.parts(), tokens = rows == ROWS_ALONE ? 1 : task.tokens;
    chain_store chains;
    for (uint32_t row = 0; row < task.count; row += CODE_ROWS) {
        const uint32_t count = HWY_MIN(CODE_ROWS, task.count - row);
        alignas(64) float totals[STREAM_TOKENS_MAX][CODE_ROWS] = {};
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t r = 0; r < count; ++r) {
                if (task.add) totals[t][r] = task.output[t * task.output_stride + row + r];
                if (task.start) totals[t][r] += task.start[row + r];
            }
        for (uint32_t part = 0; part < parts; part += PARTS) {
            const uint32_t last = HWY_MIN(part + PARTS, parts);
            run_rows<type, Dot, rows>(task, cut, row, count, part, last, chains);
            for (uint32_t p = part; p < last; ++p)
                for (uint32_t t = 0; t < tokens; ++t)
                    add_chains(chains.parts[p - part][t], count, totals[t]);
        }
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t r = 0; r < count; ++r)
                task.output[t * task.output_stride + row + r] = totals[t][r];
    }
}
template <weight_type type, class Dot>
void multiply_type(const code_task &task) {
    return task.tokens == 1 ? multiply_rows<type, Dot, ROWS_ALONE>(task)
                            : multiply_rows<type, Dot, 1>(task);
}

// With the format as a constant.
constexpr bool has_codes(weight_type type) { return usual_form_of(type) == activation_form::codes; }

template <class Dot>
void multiply(const code_task &task) {
    with_type_of<has_codes>(task.weights->type,
                            [&](auto type) HWY_ATTR { multiply_type<type(), Dot>(task); });
}

template <weight_type type>
void read(const std::byte *row, const std::byte *end, uint32_t begin, uint32_t count,
          weight_chunk &chunk) {
    read_chunk<type>(row, end, begin, count, chunk);
}

// 16 columns of 16 rows as words side by side.
template <class Dot>
HWY_INLINE void transpose_block(const weight_chunk *rows, uint32_t k, uint32_t zero,
                                code_panel_block &block) {
    const word_tag d;
    const integer_tag whole;
    const byte_tag b;
    // Four rows at a time: of each 16 bytes, transposed as four words.
    for (uint32_t r = 0; r < CODE_ROWS; ++r)
        for (uint32_t word = 0; word < 4; ++word)
            std::memcpy(&block.words[word][r], rows[r].codes + CODE_BLOCK * k + 4 * word, 4);
    for (uint32_t lane = 0; lane < CODE_ROWS; lane += LANES) {
        auto sum = hn::Zero(whole);
        for (uint32_t word = 0; word < 4; ++word) {
            const auto codes = hn::Sub(hn::BitCast(b, hn::Load(d, block.words[word] + lane)),
                                       hn::Set(b, static_cast<uint8_t>(zero)));
            hn::Store(hn::BitCast(d, codes), d, block.words[word] + lane);
            sum = Dot::dot(sum, hn::Set(b, uint8_t{128}), codes);
        }
        hn::Store(hn::Neg(sum), whole, block.starts + lane);
    }
    for (uint32_t r = 0; r < CODE_ROWS; ++r) {
        block.scales[r] = rows[r].scales[k];
        block.offsets[r] = rows[r].offsets[k];
    }
}

template <class Dot>
void pack(const matrix &weights, uint32_t first, uint32_t begin, uint32_t count,
          code_panel_block *panel) {
    const code_format format = code_format_of(weights.type);
    const auto reader = vector_codes().read[static_cast<size_t>(weights.type)];
    const uint32_t chunks = (count + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    weight_chunk rows[CODE_ROWS];
    if (!format.offsets)
        for (weight_chunk &row : rows) std::memset(row.offsets, 0, sizeof row.offsets);
    for (uint32_t c = 0; c < chunks; ++c) {
        const uint32_t first_column = c * CHUNK_COLUMNS,
                       columns = HWY_MIN(CHUNK_COLUMNS, count - first_column);
        for (uint32_t r = 0; r < CODE_ROWS; ++r) {
            const uint64_t row = HWY_MIN(first + r, weights.rows - 1);
            reader(weights.data + row * weights.row_bytes, codes_end(weights), begin + first_column,
                   columns, rows[r]);
        }
        for (uint32_t k = 0; k < columns / CODE_BLOCK; ++k)
            transpose_block<Dot>(rows, k, format.zero, panel[size_t{k} * chunks + c]);
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
            const code_panel_block &block = task.panel[size_t{k} * chunks + c];
            const uint32_t *const input =
                task.input + (size_t{k} * chunks + c) * TILE_WORDS * tokens;
            integers sum[tokens];
            const auto start = hn::Load(whole, block.starts + lane);
            for (uint32_t t = 0; t < tokens; ++t) sum[t] = start;
            for (uint32_t word = 0; word < 4; ++word) {
                const auto codes = hn::BitCast(b, hn::Load(words, block.words[word] + lane));
                for (uint32_t t = 0; t < tokens; ++t)
                    sum[t] = Dot::dot(
                        sum[t], hn::BitCast(b, hn::Set(words, input[word * tokens + t])), codes);
            }
            const auto *const scales = reinterpret_cast<const float *>(input + 4 * tokens);
            const auto scale = hn::Load(d, block.scales + lane);
            for (uint32_t t = 0; t < tokens; ++t)
                chain[t] = hn::MulAdd(hn::ConvertTo(d, sum[t]),
                                      hn::Mul(scale, hn::Set(d, scales[t])), chain[t]);
            if constexpr (offsets) {
                const auto offset = hn::Load(d, block.offsets + lane);
                for (uint32_t t = 0; t < tokens; ++t)
                    chain[t] = hn::MulAdd(offset, hn::Set(d, scales[tokens + t]), chain[t]);
            }
        }
        for (uint32_t t = 0; t < tokens; ++t) total[t] = hn::Add(total[t], chain[t]);
    }
    for (uint32_t t = 0; t < tokens; ++t) {
        float *const target = task.output + t * task.output_stride + lane;
        auto old_sums = task.add ? hn::LoadU(d, target) : hn::Zero(d);
        if (task.start) old_sums = hn::Add(old_sums, hn::LoadU(d, task.start + lane));
        hn::StoreU(hn::Add(old_sums, total[t]), d, target);
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
HWY_INLINE void round_values(const float *source, activation_chunk *chunk, uint32_t block) {
    constexpr uint32_t ALL = count / LANES, EACH = CODE_BLOCK / LANES;
    const float_tag d;
    const integer_tag whole;
    auto largest_values = hn::Zero(d), odd = hn::Zero(d);
    float_vector values[ALL];
    for (uint32_t i = 0; i < ALL; ++i) {
        values[i] = hn::LoadU(d, source + i * LANES);
        largest_values = hn::Max(largest_values, hn::Abs(values[i]));
        odd = hn::Add(odd, hn::Sub(values[i], values[i]));  // zeros, or no number
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(d, largest_values));
    const float nonfinite = hn::GetLane(hn::SumOfLanes(d, odd));
    const code_rounding rounding = code_rounding_of(count, largest, nonfinite);
    int32_t counts[count / CODE_BLOCK];
    for (uint32_t half = 0; half < count / CODE_BLOCK; ++half) {
        auto sum = hn::Zero(whole);
        for (uint32_t i = half * EACH; i < (half + 1) * EACH; ++i) {
            // If a value is no number, the scale is no number either.
            const auto code = nonfinite == 0
                                  ? hn::NearestInt(hn::Mul(values[i], hn::Set(d, rounding.inverse)))
                                  : hn::Zero(whole);
            sum = hn::Add(sum, code);
            const hn::Rebind<int8_t, float_tag> small;
            hn::StoreU(hn::DemoteTo(small, code), small,
                       chunk->codes + CODE_BLOCK * block + i * LANES);
        }
        counts[half] = hn::GetLane(hn::SumOfLanes(whole, sum));
    }
    note_rounding(rounding, count, counts, chunk, block);
}
void round_blocks(const float *values, uint32_t count, activation_chunk *chunk, uint32_t block) {
    if (count == CODE_BLOCK)
        round_values<CODE_BLOCK>(values, chunk, block);
    else
        round_values<2 * CODE_BLOCK>(values, chunk, block);
}

template <class Dot, size_t... index>
constexpr code_kernels kernels_of(std::index_sequence<index...>) {
    code_kernels kernels{round_blocks, multiply<Dot>, {}, pack<Dot>, tile<Dot>, TILE_TOKENS};
    const auto add = [&]<size_t number>() {
        constexpr weight_type type = weight_formats[number].type;
        if constexpr (has_codes(type)) kernels.read[number] = read<type>;
    };
    (add.template operator()<index>(), ...);
    return kernels;
}

template <class Dot>
const code_kernels *table_of() {
    static constexpr code_kernels KERNELS =
        kernels_of<Dot>(std::make_index_sequence<weight_format_count>());
    return &KERNELS;
}

const code_kernels *table() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if (__builtin_cpu_supports("avx512vnni")) return table_of<dot_by_quads>();
#endif
    return table_of<dot_by_halves>();
}

#else

const code_kernels *table() { return &plain_codes(); }

#endif

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
const code_kernels &vector_codes() { return *MOORAGE_CHOSEN_TARGET(table)(); }
}  // namespace moorage::core
#endif

// kernels_vector_rows.cpp - dot products of weight rows with the activations of
// a few tokens: each weight is read once, in the order of memory, and met by
// every token in registers.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_rows.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

// Sums across lanes are taken of four rows at once. A sum depends on its row and columns only, not
// on its place among these.
constexpr uint32_t ROWS = 4;
constexpr uint32_t TOKENS = 4;  // at a time, in registers
// Sums of a row that are kept as vectors until all four rows have theirs.
constexpr uint32_t PARTS = 8;

struct row_source {
    const std::byte *weights, *scales;
    uint64_t ahead;  // bytes from a weight to the one to ask for, of the same column
    const uint32_t *group_of;
};

// Stands for all formats in groups, whose reader is chosen at run time.
constexpr weight_type GROUPS = weight_type::q8_0;
constexpr uint32_t GROUP_COLUMNS = 256;  // that are made floats of at a time

// The sum over columns [begin, end) of single values for each token, one to a
// vector.
template <weight_type type, uint32_t tokens>
HWY_INLINE void dot(const row_source &row, const float *const *inputs, uint32_t begin, uint32_t end,
                    float_vector *totals) {
    const float_tag d;
    // As many independent sums as hide the latency of a multiply-add.
    constexpr uint32_t CHAINS = 4;
    constexpr uint32_t BYTES = format_of(type).bytes;
    constexpr uint32_t VECTORS_OF_LINE = HWY_MAX(1, 64 / (LANES * BYTES));
    float_vector sum[tokens][CHAINS];
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t chain = 0; chain < CHAINS; ++chain) sum[t][chain] = hn::Zero(d);
    uint32_t column = begin;
    for (; column + CHAINS * LANES <= end; column += CHAINS * LANES)
        for (uint32_t chain = 0; chain < CHAINS; ++chain) {
            const uint32_t index = column + chain * LANES;
            const std::byte *const source = row.weights + size_t{index} * BYTES;
            if (chain % VECTORS_OF_LINE == 0) prefetch_line(source + row.ahead);
            const auto weight = reader<type>::load(source);
            for (uint32_t t = 0; t < tokens; ++t)
                sum[t][chain] = hn::MulAdd(weight, hn::LoadU(d, inputs[t] + index), sum[t][chain]);
        }
    for (; column + LANES <= end; column += LANES) {
        const auto weight = reader<type>::load(row.weights + size_t{column} * BYTES);
        for (uint32_t t = 0; t < tokens; ++t)
            sum[t][0] = hn::MulAdd(weight, hn::LoadU(d, inputs[t] + column), sum[t][0]);
    }
    // The rest, filled up with zeros.
    if (column < end) {
        const uint32_t count = end - column;
        alignas(64) float rest[LANES] = {};
        alignas(64) std::byte weights[LANES * 4] = {};
        std::memcpy(weights, row.weights + size_t{column} * BYTES, count * BYTES);
        const auto weight = reader<type>::load(weights);
        for (uint32_t t = 0; t < tokens; ++t) {
            std::memcpy(rest, inputs[t] + column, count * sizeof(float));
            sum[t][0] = hn::MulAdd(weight, hn::Load(d, rest), sum[t][0]);
        }
    }
    for (uint32_t t = 0; t < tokens; ++t) {
        static_assert(CHAINS == 4);
        totals[t] = hn::Add(hn::Add(sum[t][0], sum[t][1]), hn::Add(sum[t][2], sum[t][3]));
    }
}

// The same for ROWS rows of blocks. Activations are split into even and odd ones on the way. begin
// and end are borders of blocks. sums[row * step + token]
template <weight_type type, uint32_t tokens>
HWY_INLINE void dot_blocks(const row_source *rows, const float *const *inputs, uint32_t begin,
                           uint32_t end, float_vector *sums, uint32_t step) {
    const float_tag d;
    float_vector sum[ROWS][tokens];
    for (uint32_t r = 0; r < ROWS; ++r)
        for (uint32_t t = 0; t < tokens; ++t) sum[r][t] = hn::Zero(d);
    for (uint32_t column = begin; column < end; column += 2 * LANES) {
        float_vector even[tokens], odd[tokens];
        for (uint32_t t = 0; t < tokens; ++t) {
            const auto first = hn::LoadU(d, inputs[t] + column);
            const auto second = hn::LoadU(d, inputs[t] + column + LANES);
#if HWY_TARGET == HWY_SCALAR
            even[t] = first;
            odd[t] = second;
#else
            even[t] = hn::ConcatEven(d, second, first);
            odd[t] = hn::ConcatOdd(d, second, first);
#endif
        }
        for (uint32_t r = 0; r < ROWS; ++r) {
            prefetch_ahead<type>(rows[r].weights, column, rows[r].ahead);
            float_vector low, high;
            reader<type>::load_two(rows[r].weights, column, low, high);
            const auto scale = reader<type>::scale(rows[r].scales, column);
            for (uint32_t t = 0; t < tokens; ++t)
                sum[r][t] =
                    hn::MulAdd(scale, hn::MulAdd(high, odd[t], hn::Mul(low, even[t])), sum[r][t]);
        }
    }
    for (uint32_t r = 0; r < ROWS; ++r)
        for (uint32_t t = 0; t < tokens; ++t) sums[r * step + t] = sum[r][t];
}

// The same for formats in groups. The floats of some columns stay in the nearest cache while every
// token meets them. `count` of the rows differ; the others have the sums of the last one.
template <uint32_t tokens>
HWY_INLINE void dot_groups(weight_type type, const row_source *rows, uint32_t count,
                           const float *const *inputs, uint32_t begin, uint32_t end,
                           float_vector *sums, uint32_t step) {
    const float_tag d;
    const auto widen = vector_groups().widen[static_cast<size_t>(type)];
    alignas(64) float values[ROWS][GROUP_COLUMNS];
    float_vector sum[ROWS][tokens];
    for (uint32_t r = 0; r < ROWS; ++r)
        for (uint32_t t = 0; t < tokens; ++t) sum[r][t] = hn::Zero(d);
    for (uint32_t first_column = begin; first_column < end; first_column += GROUP_COLUMNS) {
        const uint32_t columns = HWY_MIN(GROUP_COLUMNS, end - first_column);
        for (uint32_t r = 0; r < count; ++r)
            widen({rows[r].weights, rows[r].scales, rows[r].group_of}, first_column, columns,
                  values[r]);
        for (uint32_t column = 0; column < columns; column += LANES)
            for (uint32_t t = 0; t < tokens; ++t) {
                const auto input = hn::LoadU(d, inputs[t] + first_column + column);
                for (uint32_t r = 0; r < ROWS; ++r) {
                    const auto weight = hn::Load(d, values[HWY_MIN(r, count - 1)] + column);
                    sum[r][t] = hn::MulAdd(weight, input, sum[r][t]);
                }
            }
    }
    for (uint32_t r = 0; r < ROWS; ++r)
        for (uint32_t t = 0; t < tokens; ++t) sums[r * step + t] = sum[r][t];
}

// Up to PARTS parts of up to ROWS rows, added to totals[token][row].
template <weight_type type, uint32_t tokens>
HWY_INLINE void add_parts(const row_task &task, const row_source *rows, uint32_t count,
                          uint32_t begin, uint32_t end, float (*totals)[ROWS]) {
    float_vector sums[ROWS][PARTS][tokens];
    const auto each_part = [&](auto &&body) HWY_ATTR {
        for (uint32_t part = 0, part_begin = begin; part_begin < end;
             ++part, part_begin += task.part)
            body(part, part_begin, HWY_MIN(part_begin + task.part, end));
    };
    if constexpr (type == GROUPS) {
        each_part([&](uint32_t part, uint32_t first, uint32_t last) HWY_ATTR {
            dot_groups<tokens>(task.weights->type, rows, count, task.inputs, first, last,
                               sums[0][part], PARTS * tokens);
        });
    } else if constexpr (format_of(type).order == value_order::pairs) {
        each_part([&](uint32_t part, uint32_t first, uint32_t last) HWY_ATTR {
            dot_blocks<type, tokens>(rows, task.inputs, first, last, sums[0][part], PARTS * tokens);
        });
    } else {
        for (uint32_t r = 0; r < ROWS; ++r)
            each_part([&](uint32_t part, uint32_t first, uint32_t last) HWY_ATTR {
                if (r < count) {
                    dot<type, tokens>(rows[r], task.inputs, first, last, sums[r][part]);
                } else {
                    for (auto &sum : sums[r][part]) sum = hn::Zero(float_tag());
                }
            });
    }
    for (uint32_t part = 0; begin + part * task.part < end; ++part)
        for (uint32_t t = 0; t < tokens; ++t) {
            float across[ROWS];
            sum_four(sums[0][part][t], sums[1][part][t], sums[2][part][t], sums[3][part][t],
                     across);
            for (uint32_t r = 0; r < ROWS; ++r) totals[t][r] += across[r];
        }
}

template <weight_type type, uint32_t tokens>
void multiply_rows(const row_task &task) {
    const matrix &weights = *task.weights;
    const uint64_t ahead =
        weights.row_bytes * HWY_MAX(1, AHEAD_BYTES / HWY_MAX(1, weights.row_bytes));
    // At most so many columns at a time; a multiple of a part.
    const uint64_t stride = uint64_t{task.part} * PARTS;
    for (uint32_t row = 0; row < task.count; row += ROWS) {
        const uint32_t count = HWY_MIN(ROWS, task.count - row);
        row_source rows[ROWS] = {};
        float totals[tokens][ROWS] = {};
        for (uint32_t r = 0; r < ROWS; ++r) {
            // Rows beyond the last repeat the last one. Their sums are not kept.
            const uint64_t row_number = uint64_t{task.first} + row + HWY_MIN(r, count - 1);
            rows[r].weights = weights.data + row_number * weights.row_bytes;
            if constexpr (type == GROUPS) {
                rows[r].scales = scales_at(weights, row_number);
                rows[r].group_of = weights.group_of;
            } else if constexpr (format_of(type).scale_bytes != 0) {
                rows[r].scales = weights.scales + row_number * weights.scale_row_bytes;
            }
            rows[r].ahead = ahead;
            for (uint32_t t = 0; t < tokens && r < count; ++t) {
                if (task.add) totals[t][r] = task.output[t * task.output_stride + row + r];
                if (task.start) totals[t][r] += task.start[row + r];
            }
        }
        for (uint64_t begin = 0; begin < weights.columns; begin += stride)
            add_parts<type, tokens>(
                task, rows, count, static_cast<uint32_t>(begin),
                static_cast<uint32_t>(HWY_MIN(begin + stride, uint64_t{weights.columns})), totals);
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t r = 0; r < count; ++r)
                task.output[t * task.output_stride + row + r] = totals[t][r];
    }
}

template <weight_type type>
void multiply_type(const row_task &task) {
    switch (task.tokens) {
        case 1:
            return multiply_rows<type, 1>(task);
        case 2:
            return multiply_rows<type, 2>(task);
        case 3:
            return multiply_rows<type, 3>(task);
        default:
            return multiply_rows<type, 4>(task);
    }
}

void multiply_few(const row_task &task) {
    if (in_groups(task.weights->type)) return multiply_type<GROUPS>(task);
    with_type(task.weights->type, [&](auto type) HWY_ATTR { multiply_type<type()>(task); });
}

// More tokens than the registers hold meet the same few rows again, now in the
// nearest cache.
void multiply(const row_task &task) {
    if (task.tokens <= TOKENS) return multiply_few(task);
    for (uint32_t row = 0; row < task.count; row += ROWS)
        for (uint32_t token = 0; token < task.tokens; token += TOKENS) {
            row_task sub_task = task;
            sub_task.first += row;
            sub_task.count = HWY_MIN(ROWS, task.count - row);
            sub_task.tokens = HWY_MIN(TOKENS, task.tokens - token);
            for (uint32_t t = 0; t < sub_task.tokens; ++t)
                sub_task.inputs[t] = task.inputs[token + t];
            if (task.start) sub_task.start += row;
            sub_task.output += token * task.output_stride + row;
            multiply_few(sub_task);
        }
}

template <weight_type type>
HWY_INLINE void widen_row(const std::byte *row, uint32_t columns, float *target) {
    const float_tag d;
    constexpr uint32_t BYTES = format_of(type).bytes;
    uint32_t column = 0;
    for (; column + LANES <= columns; column += LANES)
        hn::StoreU(reader<type>::load(row + size_t{column} * BYTES), d, target + column);
    if (column == columns) return;
    alignas(64) std::byte rest[LANES * 4] = {};
    alignas(64) float values[LANES];
    std::memcpy(rest, row + size_t{column} * BYTES, (columns - column) * BYTES);
    hn::Store(reader<type>::load(rest), d, values);
    std::memcpy(target + column, values, (columns - column) * sizeof(float));
}

template <weight_type type>
HWY_INLINE void widen_blocks(const std::byte *row, const std::byte *scales, uint32_t columns,
                             float *target) {
    for (uint32_t column = 0; column < columns; column += 2 * LANES) {
        const auto scale = reader<type>::scale(scales, column);
        float_vector even, odd;
        reader<type>::load_two(row, column, even, odd);
        hn::StoreInterleaved2(hn::Mul(even, scale), hn::Mul(odd, scale), float_tag(),
                              target + column);
    }
}

void widen(const matrix &source, uint32_t row, float *target) {
    if (in_groups(source.type))
        return vector_groups().widen[static_cast<size_t>(source.type)](group_row_of(source, row), 0,
                                                                       source.columns, target);
    const std::byte *data = source.data + row * source.row_bytes;
    with_type(source.type, [&](auto type) HWY_ATTR {
        if constexpr (format_of(type()).order == value_order::pairs)
            widen_blocks<type()>(data, source.scales + row * source.scale_row_bytes, source.columns,
                                 target);
        else
            widen_row<type()>(data, source.columns, target);
    });
}

const row_kernels *table() {
    static constexpr row_kernels KERNELS = {multiply, widen};
    return &KERNELS;
}

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
const row_kernels &vector_rows() { return *MOORAGE_CHOSEN_TARGET(table)(); }
}  // namespace moorage::core
#endif

// kernels_vector_rows.cpp - dot products of weight rows with the activations of a few tokens: each
// weight is read once, in the order of memory, and met by every token in registers.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_rows.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

// Rows at a time. A sum depends on its row and columns only, not on its place among these.
constexpr uint32_t ROWS = 4;

struct row_block {
    const std::byte *rows[ROWS];
    const std::byte *scales[ROWS];
};

// Sums of columns [begin, end) of whole-byte types into sums[token][row].
template <weight_type type, uint32_t tokens>
HWY_INLINE void dot_block(const row_block &block, const float *const *inputs, uint32_t begin,
                          uint32_t end, float (*sums)[ROWS]) {
    const float_tag d;
    // One token gives too few independent sums to hide the latency of a multiply-add.
    constexpr uint32_t CHAINS = tokens == 1 ? 2 : 1;
    constexpr uint32_t BYTES = BYTES_OF<type>;
    float_vector sum[tokens][ROWS][CHAINS];
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < ROWS; ++r)
            for (uint32_t chain = 0; chain < CHAINS; ++chain) sum[t][r][chain] = hn::Zero(d);
    uint32_t column = begin;
    for (; column + CHAINS * LANES <= end; column += CHAINS * LANES)
        for (uint32_t chain = 0; chain < CHAINS; ++chain) {
            const uint32_t at = column + chain * LANES;
            float_vector input[tokens];
            for (uint32_t t = 0; t < tokens; ++t) input[t] = hn::LoadU(d, inputs[t] + at);
            for (uint32_t r = 0; r < ROWS; ++r) {
                const auto weight = load_as_float<type>(block.rows[r] + size_t{at} * BYTES);
                for (uint32_t t = 0; t < tokens; ++t)
                    sum[t][r][chain] = hn::MulAdd(weight, input[t], sum[t][r][chain]);
            }
        }
    // The rest, filled up with zeros.
    for (; column < end; column += LANES) {
        const uint32_t count = HWY_MIN(LANES, end - column);
        alignas(64) float rest[LANES] = {};
        alignas(64) std::byte weights[LANES * 4] = {};
        float_vector input[tokens];
        for (uint32_t t = 0; t < tokens; ++t) {
            std::memcpy(rest, inputs[t] + column, count * sizeof(float));
            input[t] = hn::Load(d, rest);
        }
        for (uint32_t r = 0; r < ROWS; ++r) {
            std::memcpy(weights, block.rows[r] + size_t{column} * BYTES, count * BYTES);
            const auto weight = load_as_float<type>(weights);
            for (uint32_t t = 0; t < tokens; ++t)
                sum[t][r][0] = hn::MulAdd(weight, input[t], sum[t][r][0]);
        }
    }
    for (uint32_t t = 0; t < tokens; ++t) {
        if constexpr (CHAINS == 2)
            for (uint32_t r = 0; r < ROWS; ++r) sum[t][r][0] = hn::Add(sum[t][r][0], sum[t][r][1]);
        sum_four(sum[t][0][0], sum[t][1][0], sum[t][2][0], sum[t][3][0], sums[t]);
    }
}

// The same for mxfp4; begin and end are multiples of 32.
template <uint32_t tokens>
HWY_INLINE void dot_fp4(const row_block &block, const float *const *inputs, uint32_t begin,
                        uint32_t end, float (*sums)[ROWS]) {
    const float_tag d;
    float_vector sum[tokens][ROWS];
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < ROWS; ++r) sum[t][r] = hn::Zero(d);
    for (uint32_t column = begin; column < end; column += 32) {
        float_vector scale[ROWS];
        for (uint32_t r = 0; r < ROWS; ++r)
            scale[r] = hn::Set(d, scale_value(block.scales[r][column / 32]));
        for (uint32_t at = column; at < column + 32; at += 2 * LANES) {
            float_vector even[tokens], odd[tokens];
            for (uint32_t t = 0; t < tokens; ++t) {
                const auto first = hn::LoadU(d, inputs[t] + at);
                const auto second = hn::LoadU(d, inputs[t] + at + LANES);
#if HWY_TARGET == HWY_SCALAR
                even[t] = first;
                odd[t] = second;
#else
                even[t] = hn::ConcatEven(d, second, first);
                odd[t] = hn::ConcatOdd(d, second, first);
#endif
            }
            for (uint32_t r = 0; r < ROWS; ++r) {
                const auto codes = load_bytes(block.rows[r] + at / 2);
                const auto low = hn::Mul(fp4_values(codes), scale[r]);
                const auto high = hn::Mul(fp4_values(hn::ShiftRight<4>(codes)), scale[r]);
                for (uint32_t t = 0; t < tokens; ++t)
                    sum[t][r] = hn::MulAdd(high, odd[t], hn::MulAdd(low, even[t], sum[t][r]));
            }
        }
    }
    for (uint32_t t = 0; t < tokens; ++t)
        sum_four(sum[t][0], sum[t][1], sum[t][2], sum[t][3], sums[t]);
}

template <weight_type type, uint32_t tokens>
void multiply_rows(const row_task &task) {
    const matrix &weights = *task.weights;
    for (uint32_t row = 0; row < task.count; row += ROWS) {
        const uint32_t count = HWY_MIN(ROWS, task.count - row);
        row_block block;
        float totals[tokens][ROWS] = {};
        for (uint32_t r = 0; r < ROWS; ++r) {
            // Rows beyond the last are the last once more; their sums are not kept.
            const uint64_t at = row + HWY_MIN(r, count - 1);
            block.rows[r] = weights.data + (task.first + at) * weights.row_bytes;
            if constexpr (type == weight_type::mxfp4)
                block.scales[r] = weights.scales + (task.first + at) * weights.scale_row_bytes;
            for (uint32_t t = 0; t < tokens; ++t) {
                if (task.add) totals[t][r] = task.output[t * task.output_stride + at];
                if (task.start) totals[t][r] += task.start[at];
            }
        }
        for (uint32_t begin = 0; begin < weights.columns; begin += task.part) {
            const uint32_t end = HWY_MIN(weights.columns, begin + task.part);
            float sums[tokens][ROWS];
            if constexpr (type == weight_type::mxfp4) {
                dot_fp4<tokens>(block, task.inputs, begin, end, sums);
            } else {
                dot_block<type, tokens>(block, task.inputs, begin, end, sums);
            }
            for (uint32_t t = 0; t < tokens; ++t)
                for (uint32_t r = 0; r < ROWS; ++r) totals[t][r] += sums[t][r];
        }
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

void multiply(const row_task &task) {
    switch (task.weights->type) {
        case weight_type::f32:
            return multiply_type<weight_type::f32>(task);
        case weight_type::f16:
            return multiply_type<weight_type::f16>(task);
        case weight_type::bf16:
            return multiply_type<weight_type::bf16>(task);
        case weight_type::mxfp4:
            return multiply_type<weight_type::mxfp4>(task);
    }
}

template <weight_type type>
HWY_INLINE void widen_row(const std::byte *row, uint32_t columns, float *out) {
    const float_tag d;
    constexpr uint32_t BYTES = BYTES_OF<type>;
    uint32_t column = 0;
    for (; column + LANES <= columns; column += LANES)
        hn::StoreU(load_as_float<type>(row + size_t{column} * BYTES), d, out + column);
    if (column == columns) return;
    alignas(64) std::byte rest[LANES * 4] = {};
    alignas(64) float values[LANES];
    std::memcpy(rest, row + size_t{column} * BYTES, (columns - column) * BYTES);
    hn::Store(load_as_float<type>(rest), d, values);
    std::memcpy(out + column, values, (columns - column) * sizeof(float));
}

void widen_fp4(const std::byte *row, const std::byte *scales, uint32_t columns, float *out) {
    const float_tag d;
    for (uint32_t column = 0; column < columns; column += 2 * LANES) {
        const auto scale = hn::Set(d, scale_value(scales[column / 32]));
        const auto codes = load_bytes(row + column / 2);
        const auto low = hn::Mul(fp4_values(codes), scale);
        const auto high = hn::Mul(fp4_values(hn::ShiftRight<4>(codes)), scale);
        hn::StoreInterleaved2(low, high, d, out + column);
    }
}

void widen(const matrix &from, uint32_t row, float *out) {
    const std::byte *data = from.data + row * from.row_bytes;
    switch (from.type) {
        case weight_type::f32:
            return widen_row<weight_type::f32>(data, from.columns, out);
        case weight_type::f16:
            return widen_row<weight_type::f16>(data, from.columns, out);
        case weight_type::bf16:
            return widen_row<weight_type::bf16>(data, from.columns, out);
        case weight_type::mxfp4:
            return widen_fp4(data, from.scales + row * from.scale_row_bytes, from.columns, out);
    }
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
namespace {
HWY_EXPORT(table);
}  // namespace
const row_kernels &vector_rows() { return *HWY_DYNAMIC_DISPATCH(table)(); }
}  // namespace moorage::core
#endif

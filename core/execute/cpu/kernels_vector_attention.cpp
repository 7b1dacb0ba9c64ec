// kernels_vector_attention.cpp - scores, their exponents and sums of values
// over a cache of floats.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_attention.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"
#include "core/execute/cpu/kernels_vector_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

constexpr uint32_t CHUNK = 128;     // positions whose scores are kept at once
constexpr float LOWEST = -3.0e38f;  // below every score
// How many positions ahead keys and values are prefetched. Those of one head are far apart, where
// no prefetcher of the processor looks.
constexpr uint32_t AHEAD = 8;

// The first `count` of LANES values, zeros after.
HWY_INLINE float_vector load_some(const float *source, uint32_t count) {
    alignas(64) float rest[LANES] = {};
    std::memcpy(rest, source, count * sizeof(float));
    return hn::Load(float_tag(), rest);
}

// scores[head][p] = scale * query of head . key p, for `count` positions. There is room for a
// multiple of four. A key is read once for all these heads.
template <uint32_t heads>
HWY_INLINE void score(const float *query, const float *keys, size_t stride, uint32_t head_dim,
                      uint32_t count, float scale, float (*scores)[CHUNK]) {
    const float_tag d;
    const uint32_t whole = head_dim / LANES * LANES;
    const size_t ahead = AHEAD * stride;
    for (uint32_t position = 0; position < count; position += 4) {
        const float *key[4];
        for (uint32_t i = 0; i < 4; ++i) key[i] = keys + HWY_MIN(position + i, count - 1) * stride;
        float_vector sums[heads][4];
        for (uint32_t head = 0; head < heads; ++head)
            for (uint32_t i = 0; i < 4; ++i) sums[head][i] = hn::Zero(d);
        for (uint32_t column = 0; column < whole; column += LANES)
            for (uint32_t i = 0; i < 4; ++i) {
                hwy::Prefetch(key[i] + column + ahead);
                const auto part = hn::LoadU(d, key[i] + column);
                for (uint32_t head = 0; head < heads; ++head)
                    sums[head][i] = hn::MulAdd(hn::LoadU(d, query + head * head_dim + column), part,
                                               sums[head][i]);
            }
        if (whole != head_dim)
            for (uint32_t i = 0; i < 4; ++i) {
                const auto part = load_some(key[i] + whole, head_dim - whole);
                for (uint32_t head = 0; head < heads; ++head)
                    sums[head][i] =
                        hn::MulAdd(load_some(query + head * head_dim + whole, head_dim - whole),
                                   part, sums[head][i]);
            }
        for (uint32_t head = 0; head < heads; ++head) {
            float *const target = scores[head] + position;
            sum_four(sums[head][0], sums[head][1], sums[head][2], sums[head][3], target);
            for (uint32_t i = 0; i < 4; ++i) target[i] *= scale;
        }
    }
}

// For each head: sums += sum over positions of weights[head][p] value p,
// `vectors` vectors wide.
template <uint32_t heads, uint32_t vectors>
HWY_INLINE void add_values(const float (*weights)[CHUNK], const float *values, size_t stride,
                           uint32_t count, float *sums, size_t sums_stride) {
    const float_tag d;
    float_vector sum[heads][vectors];
    const size_t ahead = AHEAD * stride;
    for (uint32_t head = 0; head < heads; ++head)
        for (uint32_t i = 0; i < vectors; ++i)
            sum[head][i] = hn::LoadU(d, sums + head * sums_stride + i * LANES);
    for (uint32_t position = 0; position < count; ++position, values += stride) {
        float_vector weight[heads];
        for (uint32_t head = 0; head < heads; ++head)
            weight[head] = hn::Set(d, weights[head][position]);
        for (uint32_t i = 0; i < vectors; ++i) {
            hwy::Prefetch(values + i * LANES + ahead);
            const auto value = hn::LoadU(d, values + i * LANES);
            for (uint32_t head = 0; head < heads; ++head)
                sum[head][i] = hn::MulAdd(weight[head], value, sum[head][i]);
        }
    }
    for (uint32_t head = 0; head < heads; ++head)
        for (uint32_t i = 0; i < vectors; ++i)
            hn::StoreU(sum[head][i], d, sums + head * sums_stride + i * LANES);
}

template <uint32_t heads>
HWY_INLINE void add_all_values(const float (*weights)[CHUNK], const float *values, size_t stride,
                               uint32_t value_dim, uint32_t count, float *sums,
                               size_t sums_stride) {
    constexpr uint32_t VECTORS = heads == 1 ? 8 : 4;
    uint32_t column = 0;
    for (; column + VECTORS * LANES <= value_dim; column += VECTORS * LANES)
        add_values<heads, VECTORS>(weights, values + column, stride, count, sums + column,
                                   sums_stride);
    for (; column + LANES <= value_dim; column += LANES)
        add_values<heads, 1>(weights, values + column, stride, count, sums + column, sums_stride);
    for (; column < value_dim; ++column)
        for (uint32_t head = 0; head < heads; ++head)
            for (uint32_t position = 0; position < count; ++position)
                sums[head * sums_stride + column] +=
                    weights[head][position] * values[position * stride + column];
}

float largest(const float *scores, uint32_t begin, uint32_t end) {
    const float_tag d;
    auto maximum = hn::Set(d, LOWEST);
    uint32_t i = begin;
    for (; i + LANES <= end; i += LANES) maximum = hn::Max(maximum, hn::LoadU(d, scores + i));
    float result = hn::GetLane(hn::MaxOfLanes(d, maximum));
    for (; i < end; ++i) result = HWY_MAX(result, scores[i]);
    return result;
}

float exponents(float *scores, uint32_t begin, uint32_t end, uint32_t count, float largest) {
    const float_tag d;
    for (uint32_t i = 0; i < begin; ++i) scores[i] = LOWEST;
    for (uint32_t i = end; i < count; ++i) scores[i] = LOWEST;
    const auto maximum = hn::Set(d, largest);
    auto sums = hn::Zero(d);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const auto weight = exponential(hn::Sub(hn::LoadU(d, scores + i), maximum));
        hn::StoreU(weight, d, scores + i);
        sums = hn::Add(sums, weight);
    }
    float sum = hn::GetLane(hn::SumOfLanes(d, sums));
    for (; i < count; ++i) {
        scores[i] = hn::GetLane(exponential(hn::Set(d, scores[i] - largest)));
        sum += scores[i];
    }
    return sum;
}

void scale(float *values, uint32_t count, float factor) {
    const float_tag d;
    const auto factors = hn::Set(d, factor);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        hn::StoreU(hn::Mul(hn::LoadU(d, values + i), factors), d, values + i);
    for (; i < count; ++i) values[i] *= factor;
}

// Positions [begin, begin + count) for `heads` heads from `first` on.
template <uint32_t heads>
HWY_INLINE void add_chunk(const span_task &task, uint32_t first, size_t begin, uint32_t count) {
    alignas(64) float scores[heads][CHUNK];
    score<heads>(task.query + size_t{first} * task.head_dim, task.keys + begin * task.key_stride,
                 task.key_stride, task.head_dim, count, task.scale, scores);
    float *const partials = task.partial + first * task.partial_stride;
    for (uint32_t head = 0; head < heads; ++head) {
        float *const partial = partials + head * task.partial_stride;
        float &largest_score = partial[task.partial_stride - 2];
        float &total = partial[task.partial_stride - 1];
        const float new_largest = HWY_MAX(largest_score, largest(scores[head], 0, count));
        const float shrink =
            hn::GetLane(exponential(hn::Set(float_tag(), largest_score - new_largest)));
        if (shrink != 1) scale(partial, task.value_dim, shrink);
        total = total * shrink + exponents(scores[head], 0, count, count, new_largest);
        largest_score = new_largest;
    }
    add_all_values<heads>(scores, task.values + begin * task.value_stride, task.value_stride,
                          task.value_dim, count, partials, task.partial_stride);
}

void span(const span_task &task) {
    for (uint32_t head = 0; head < task.heads; ++head) {
        float *const partial = task.partial + head * task.partial_stride;
        std::memset(partial, 0, task.partial_stride * sizeof(float));
        partial[task.partial_stride - 2] = LOWEST;
    }
    // Chunk by chunk, so that keys and values come from memory once for all
    // heads.
    for (size_t begin = task.begin; begin < task.end; begin += CHUNK) {
        const uint32_t count = static_cast<uint32_t>(HWY_MIN(CHUNK, task.end - begin));
        uint32_t head = 0;
        for (; head + 4 <= task.heads; head += 4) add_chunk<4>(task, head, begin, count);
        for (; head + 2 <= task.heads; head += 2) add_chunk<2>(task, head, begin, count);
        if (head < task.heads) add_chunk<1>(task, head, begin, count);
    }
}

void copy_values(const float *values, size_t stride, uint32_t positions, uint32_t column,
                 uint32_t limit, float *panel) {
    const float_tag d;
    constexpr uint32_t WIDTH = 2 * LANES;
    for (uint32_t position = 0; position < positions; ++position, panel += WIDTH) {
        const float *source = values + position * stride + column;
        hwy::Prefetch(source + AHEAD * stride);
        hwy::Prefetch(source + AHEAD * stride + LANES);
        if (column + WIDTH <= limit) {
            hn::Store(hn::LoadU(d, source), d, panel);
            hn::Store(hn::LoadU(d, source + LANES), d, panel + LANES);
            continue;
        }
        const uint32_t count = limit - column;
        hn::Store(load_some(source, HWY_MIN(count, LANES)), d, panel);
        if (count > LANES) {
            hn::Store(load_some(source + LANES, count - LANES), d, panel + LANES);
        } else {
            hn::Store(hn::Zero(d), d, panel + LANES);
        }
    }
}

const attention_kernels *table() {
    static constexpr attention_kernels KERNELS = {span, exponents, largest, copy_values, scale};
    return &KERNELS;
}

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
const attention_kernels &vector_attention() { return *MOORAGE_CHOSEN_TARGET(table)(); }
}  // namespace moorage::core
#endif

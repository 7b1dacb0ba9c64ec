// kernels_vector_attention.cpp - scores, their exponents and sums of values over a cache of floats.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

constexpr uint32_t CHUNK = 128;     // positions whose scores are kept at once
constexpr float LOWEST = -3.0e38f;  // below every score
constexpr uint32_t VALUES = 8;      // vectors of a value summed at once

// The first `count` of LANES values, zeros after.
HWY_INLINE float_vector load_some(const float *from, uint32_t count) {
    alignas(64) float rest[LANES] = {};
    std::memcpy(rest, from, count * sizeof(float));
    return hn::Load(float_tag(), rest);
}

// scores[p] = scale * query . key p, for `count` positions; room for a multiple of four.
HWY_INLINE void score(const float *query, const float *keys, size_t stride, uint32_t head_dim,
                      uint32_t count, float scale, float *scores) {
    const float_tag d;
    const uint32_t whole = head_dim / LANES * LANES;
    for (uint32_t position = 0; position < count; position += 4) {
        const float *key[4];
        for (uint32_t i = 0; i < 4; ++i) key[i] = keys + HWY_MIN(position + i, count - 1) * stride;
        float_vector sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
        for (uint32_t at = 0; at < whole; at += LANES) {
            const auto part = hn::LoadU(d, query + at);
            for (uint32_t i = 0; i < 4; ++i)
                sums[i] = hn::MulAdd(part, hn::LoadU(d, key[i] + at), sums[i]);
        }
        if (whole != head_dim) {
            const auto part = load_some(query + whole, head_dim - whole);
            for (uint32_t i = 0; i < 4; ++i)
                sums[i] = hn::MulAdd(part, load_some(key[i] + whole, head_dim - whole), sums[i]);
        }
        sum_four(sums[0], sums[1], sums[2], sums[3], scores + position);
        for (uint32_t i = 0; i < 4; ++i) scores[position + i] *= scale;
    }
}

// sums = shrink * sums + sum over positions of weights[p] value p, `vectors` vectors wide.
template <uint32_t vectors>
HWY_INLINE void add_values(const float *weights, const float *values, size_t stride, uint32_t count,
                           float shrink, float *sums) {
    const float_tag d;
    float_vector sum[vectors];
    const auto shrinks = hn::Set(d, shrink);
    for (uint32_t i = 0; i < vectors; ++i)
        sum[i] = hn::Mul(hn::LoadU(d, sums + i * LANES), shrinks);
    for (uint32_t position = 0; position < count; ++position, values += stride) {
        const auto weight = hn::Set(d, weights[position]);
        for (uint32_t i = 0; i < vectors; ++i)
            sum[i] = hn::MulAdd(weight, hn::LoadU(d, values + i * LANES), sum[i]);
    }
    for (uint32_t i = 0; i < vectors; ++i) hn::StoreU(sum[i], d, sums + i * LANES);
}

HWY_INLINE void add_all_values(const float *weights, const float *values, size_t stride,
                               uint32_t value_dim, uint32_t count, float shrink, float *sums) {
    uint32_t at = 0;
    for (; at + VALUES * LANES <= value_dim; at += VALUES * LANES)
        add_values<VALUES>(weights, values + at, stride, count, shrink, sums + at);
    for (; at + LANES <= value_dim; at += LANES)
        add_values<1>(weights, values + at, stride, count, shrink, sums + at);
    for (; at < value_dim; ++at) {
        sums[at] *= shrink;
        for (uint32_t position = 0; position < count; ++position)
            sums[at] += weights[position] * values[position * stride + at];
    }
}

float largest(const float *scores, uint32_t begin, uint32_t end) {
    const float_tag d;
    auto most = hn::Set(d, LOWEST);
    uint32_t i = begin;
    for (; i + LANES <= end; i += LANES) most = hn::Max(most, hn::LoadU(d, scores + i));
    float result = hn::GetLane(hn::MaxOfLanes(d, most));
    for (; i < end; ++i) result = HWY_MAX(result, scores[i]);
    return result;
}

float exponents(float *scores, uint32_t begin, uint32_t end, uint32_t count, float above) {
    const float_tag d;
    for (uint32_t i = 0; i < begin; ++i) scores[i] = LOWEST;
    for (uint32_t i = end; i < count; ++i) scores[i] = LOWEST;
    const auto most = hn::Set(d, above);
    auto sums = hn::Zero(d);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const auto weight = exponential(hn::Sub(hn::LoadU(d, scores + i), most));
        hn::StoreU(weight, d, scores + i);
        sums = hn::Add(sums, weight);
    }
    float sum = hn::GetLane(hn::SumOfLanes(d, sums));
    for (; i < count; ++i) {
        scores[i] = hn::GetLane(exponential(hn::Set(d, scores[i] - above)));
        sum += scores[i];
    }
    return sum;
}

void span(const span_task &task) {
    alignas(64) float scores[CHUNK];
    for (uint32_t head = 0; head < task.heads; ++head) {
        float *const partial = task.partial + head * task.partial_stride;
        std::memset(partial, 0, task.partial_stride * sizeof(float));
        partial[task.partial_stride - 2] = LOWEST;
    }
    // Chunk by chunk, so that keys and values come from memory once for all heads.
    for (size_t begin = task.begin; begin < task.end; begin += CHUNK) {
        const uint32_t count = static_cast<uint32_t>(HWY_MIN(CHUNK, task.end - begin));
        for (uint32_t head = 0; head < task.heads; ++head) {
            float *const partial = task.partial + head * task.partial_stride;
            float &most = partial[task.partial_stride - 2];
            float &total = partial[task.partial_stride - 1];
            score(task.query + size_t{head} * task.head_dim, task.keys + begin * task.key_stride,
                  task.key_stride, task.head_dim, count, task.scale, scores);
            const float more = HWY_MAX(most, largest(scores, 0, count));
            const float shrink = hn::GetLane(exponential(hn::Set(float_tag(), most - more)));
            most = more;
            total = total * shrink + exponents(scores, 0, count, count, more);
            add_all_values(scores, task.values + begin * task.value_stride, task.value_stride,
                           task.value_dim, count, shrink, partial);
        }
    }
}

void copy_values(const float *values, size_t stride, uint32_t positions, uint32_t column,
                 uint32_t limit, float *panel) {
    const float_tag d;
    constexpr uint32_t WIDTH = 2 * LANES;
    for (uint32_t position = 0; position < positions; ++position, panel += WIDTH) {
        const float *from = values + position * stride + column;
        if (column + WIDTH <= limit) {
            hn::Store(hn::LoadU(d, from), d, panel);
            hn::Store(hn::LoadU(d, from + LANES), d, panel + LANES);
            continue;
        }
        const uint32_t count = limit - column;
        hn::Store(load_some(from, HWY_MIN(count, LANES)), d, panel);
        if (count > LANES) {
            hn::Store(load_some(from + LANES, count - LANES), d, panel + LANES);
        } else {
            hn::Store(hn::Zero(d), d, panel + LANES);
        }
    }
}

void scale(float *values, uint32_t count, float by) {
    const float_tag d;
    const auto factor = hn::Set(d, by);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        hn::StoreU(hn::Mul(hn::LoadU(d, values + i), factor), d, values + i);
    for (; i < count; ++i) values[i] *= by;
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
namespace {
HWY_EXPORT(table);
}  // namespace
const attention_kernels &vector_attention() { return *HWY_DYNAMIC_DISPATCH(table)(); }
}  // namespace moorage::core
#endif

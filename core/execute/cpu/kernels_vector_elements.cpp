// kernels_vector_elements.cpp - activations and norms, value by value; and the
// loops that measure what the machine can do.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_elements.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"
#include "core/execute/cpu/kernels_vector_exp-inl.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

// 1 / (1 + exp(-x))
HWY_INLINE float_vector sigmoid(float_vector x) {
    const float_tag d;
    const auto ones = hn::Set(d, 1.0f);
    return hn::Div(ones, hn::Add(ones, exponential(hn::Neg(x))));
}

HWY_INLINE float_vector activated(activation_kind kind, float_vector limit, float_vector gate,
                                  float_vector up) {
    const float_tag d;
    switch (kind) {
        case activation_kind::silu:
            return hn::Mul(hn::Mul(gate, sigmoid(gate)), up);
        case activation_kind::gelu_tanh: {
            // 0.5 (1 + tanh z) is the sigmoid of 2 z.
            const auto cube = hn::Mul(hn::Mul(gate, gate), gate);
            const auto z = hn::Mul(hn::Set(d, 1.5957691216057308f),
                                   hn::MulAdd(hn::Set(d, 0.044715f), cube, gate));
            return hn::Mul(hn::Mul(gate, sigmoid(z)), up);
        }
        case activation_kind::clamped_swiglu: {
            // 1, unless one of them is no finite number: the limits would hide that.
            const auto one_or_nan =
                hn::Add(hn::Set(d, 1.0f), hn::Add(hn::Sub(gate, gate), hn::Sub(up, up)));
            gate = hn::Min(gate, limit);
            up = hn::Max(hn::Min(up, limit), hn::Neg(limit));
            const auto gated = hn::Mul(gate, sigmoid(hn::Mul(hn::Set(d, 1.702f), gate)));
            return hn::Mul(hn::Add(up, one_or_nan), gated);
        }
        case activation_kind::gelu:
            break;
    }
    alignas(64) float values[LANES];
    hn::Store(gate, d, values);
    for (float &value : values) value *= 0.5f * (1 + std::erf(value * 0.70710678118654752f));
    return hn::Mul(hn::Load(d, values), up);
}

void activate(activation_kind kind, float limit, uint32_t count, float *gate, const float *up) {
    const float_tag d;
    const auto limits = hn::Set(d, limit);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        hn::StoreU(activated(kind, limits, hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d,
                   gate + i);
    if (i == count) return;
    alignas(64) float gates[LANES] = {}, ups[LANES] = {};
    std::memcpy(gates, gate + i, (count - i) * sizeof(float));
    std::memcpy(ups, up + i, (count - i) * sizeof(float));
    hn::Store(activated(kind, limits, hn::Load(d, gates), hn::Load(d, ups)), d, gates);
    std::memcpy(gate + i, gates, (count - i) * sizeof(float));
}

HWY_INLINE float sum(float_vector v) { return hn::GetLane(hn::SumOfLanes(float_tag(), v)); }

void normalise(norm_kind kind, const float *weight, const float *bias, float epsilon,
               uint32_t width, const float *input, float *output) {
    const float_tag d;
    const uint32_t whole = width / LANES * LANES;
    float mean = 0;
    if (kind == norm_kind::layer) {
        auto sums = hn::Zero(d);
        for (uint32_t i = 0; i < whole; i += LANES) sums = hn::Add(sums, hn::LoadU(d, input + i));
        mean = sum(sums);
        for (uint32_t i = whole; i < width; ++i) mean += input[i];
        mean /= static_cast<float>(width);
    }
    const auto means = hn::Set(d, mean);
    auto squares = hn::Zero(d);
    for (uint32_t i = 0; i < whole; i += LANES) {
        const auto value = hn::Sub(hn::LoadU(d, input + i), means);
        squares = hn::MulAdd(value, value, squares);
    }
    float square = sum(squares);
    for (uint32_t i = whole; i < width; ++i) square += (input[i] - mean) * (input[i] - mean);
    const float scale = 1 / std::sqrt(square / static_cast<float>(width) + epsilon);
    const auto scales = hn::Set(d, scale);
    for (uint32_t i = 0; i < whole; i += LANES) {
        const auto value = hn::Mul(hn::Sub(hn::LoadU(d, input + i), means), scales);
        auto result = hn::Mul(value, hn::LoadU(d, weight + i));
        if (bias) result = hn::Add(result, hn::LoadU(d, bias + i));
        hn::StoreU(result, d, output + i);
    }
    for (uint32_t i = whole; i < width; ++i)
        output[i] = (input[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
}

// A multiple of 16 vectors.
float read(const float *values, size_t count) {
    const float_tag d;
    constexpr size_t CHAINS = 8;
    float_vector sums[CHAINS];
    for (float_vector &chain_sum : sums) chain_sum = hn::Zero(d);
    for (size_t i = 0; i + CHAINS * LANES <= count; i += CHAINS * LANES)
        for (size_t chain = 0; chain < CHAINS; ++chain)
            sums[chain] = hn::Add(sums[chain], hn::LoadU(d, values + i + chain * LANES));
    for (size_t chain = 1; chain < CHAINS; ++chain) sums[0] = hn::Add(sums[0], sums[chain]);
    return sum(sums[0]);
}

double multiply_add(uint64_t rounds, float *sink) {
    const float_tag d;
    constexpr uint32_t CHAINS = 12;
    float_vector sums[CHAINS];
    const auto factor = hn::Set(d, sink[0]), term = hn::Set(d, sink[1]);
    for (uint32_t chain = 0; chain < CHAINS; ++chain)
        sums[chain] = hn::Set(d, static_cast<float>(chain));
    for (uint64_t round = 0; round < rounds; ++round)
        for (uint32_t chain = 0; chain < CHAINS; ++chain)
            sums[chain] = hn::MulAdd(sums[chain], factor, term);
    for (uint32_t chain = 1; chain < CHAINS; ++chain) sums[0] = hn::Add(sums[0], sums[chain]);
    sink[2] = sum(sums[0]);
    return 2.0 * static_cast<double>(rounds) * CHAINS * LANES;
}

const element_kernels *table() {
    static constexpr element_kernels KERNELS = {activate, normalise, read, multiply_add};
    return &KERNELS;
}

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
const element_kernels &vector_elements() { return *MOORAGE_CHOSEN_TARGET(table)(); }
}  // namespace moorage::core
#endif

// kernels.cpp - the arithmetic of a layer in plain loops.
#include "core/execute/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace moorage::core {
namespace {

float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023u;
    if (exponent == 0) {
        const float value = std::ldexp(static_cast<float>(fraction), -24);
        return sign ? -value : value;
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00;
    if (magnitude < 0x38800000u) {
        const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
        return sign | static_cast<uint16_t>(std::nearbyint(scaled));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

float weight_at(const matrix &of, uint32_t row, uint32_t column) {
    static constexpr float FP4[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const std::byte *data = of.data + row * of.row_bytes;
    uint16_t bits = 0;
    float value = 0;
    switch (of.type) {
        case weight_type::f32:
            std::memcpy(&value, data + size_t{column} * 4, 4);
            return value;
        case weight_type::f16:
            std::memcpy(&bits, data + size_t{column} * 2, 2);
            return half_to_float(bits);
        case weight_type::bf16:
            std::memcpy(&bits, data + size_t{column} * 2, 2);
            return std::bit_cast<float>(uint32_t{bits} << 16);
        case weight_type::mxfp4:
            break;
    }
    const auto pair = std::to_integer<uint32_t>(data[column / 2]);
    const auto scale = std::to_integer<int>(of.scales[row * of.scale_row_bytes + column / 32]);
    return std::ldexp(FP4[column % 2 ? pair >> 4 : pair & 15], scale - 127);
}

float dot(const matrix &weights, uint32_t row, uint32_t begin, uint32_t end, const float *input) {
    float sums[8] = {};
    for (uint32_t column = begin; column < end; ++column)
        sums[column % 8] =
            std::fma(weight_at(weights, row, column), input[column], sums[column % 8]);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

float activate(activation_kind kind, float limit, float gate, float up) {
    switch (kind) {
        case activation_kind::silu:
            return gate / (1 + std::exp(-gate)) * up;
        case activation_kind::gelu:
            return 0.5f * gate * (1 + std::erf(gate * 0.70710678f)) * up;
        case activation_kind::gelu_tanh:
            return 0.5f * gate *
                   (1 + std::tanh(0.79788456f * (gate + 0.044715f * gate * gate * gate))) * up;
        case activation_kind::clamped_swiglu:
            break;
    }
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
    return (up + 1) * gate / (1 + std::exp(-1.702f * gate));
}

uint32_t part_rows(uint32_t intermediate) {
    const uint32_t eighth = (intermediate + 7) / 8;
    return (eighth + 31) / 32 * 32;
}

}  // namespace

void multiply(thread_pool &pool, uint32_t tokens, std::span<const product> all) {
    for (const product &one : all)
        pool.each(one.weights->rows, [&](uint32_t row) {
            for (uint32_t token = 0; token < tokens; ++token)
                one.output.data[token * one.output.stride + row] =
                    dot(*one.weights, row, 0, one.weights->columns,
                        one.input.data + token * one.input.stride) +
                    (one.bias.empty() ? 0 : one.bias[row]);
        });
}

struct mlp_kernel::scratch {
    std::vector<float> activations;
};

mlp_kernel::mlp_kernel(thread_pool &pool) : pool_(pool), scratch_(new scratch) {}
mlp_kernel::~mlp_kernel() { delete scratch_; }

void mlp_kernel::operator()(const mlp_call &call) {
    const mlp_weights &weights = *call.weights;
    const uint32_t part = part_rows(call.intermediate);
    scratch_->activations.resize(size_t{call.tokens} * call.count);
    float *activations = scratch_->activations.data();
    const auto input = [&](uint32_t token) {
        return call.input.data + (call.gathered ? call.gathered[token] : token) * call.input.stride;
    };
    pool_.each(call.count, [&](uint32_t row) {
        for (uint32_t token = 0; token < call.tokens; ++token) {
            float gate = dot(weights.gate, row, 0, weights.gate.columns, input(token));
            float up = dot(weights.up, row, 0, weights.up.columns, input(token));
            if (!weights.gate_bias.empty()) gate += weights.gate_bias[row];
            if (!weights.up_bias.empty()) up += weights.up_bias[row];
            activations[size_t{token} * call.count + row] =
                activate(call.activation, call.limit, gate, up);
        }
    });
    pool_.each(weights.down.rows, [&](uint32_t row) {
        for (uint32_t token = 0; token < call.tokens; ++token) {
            float &output = call.output.data[token * call.output.stride + row];
            float sum = call.add ? output : 0;
            if (call.first == 0 && !weights.down_bias.empty()) sum += weights.down_bias[row];
            for (uint32_t begin = 0; begin < call.count; begin += part)
                sum += dot(weights.down, row, begin, std::min(begin + part, call.count),
                           activations + size_t{token} * call.count);
            output = sum;
        }
    });
}

void mlp_kernel::operator()(std::span<const mlp_call> calls) {
    for (const mlp_call &call : calls) (*this)(call);
}

void attend(thread_pool &pool, const attention_call &call) {
    const uint32_t group = call.heads / call.kv_heads;
    pool.each(call.tokens * call.heads, [&](uint32_t item) {
        const uint32_t token = item / call.heads, head = item % call.heads;
        const size_t kv_head = head / group;
        const float *query =
            call.query.data + token * call.query.stride + size_t{head} * call.head_dim;
        float *output =
            call.output.data + token * call.output.stride + size_t{head} * call.value_dim;
        std::fill_n(output, call.value_dim, 0.0f);
        float largest = call.sinks.empty() ? -INFINITY : call.sinks[head];
        float total = call.sinks.empty() ? 0 : 1;
        for (size_t position = call.from[token]; position <= call.positions[token]; ++position) {
            const float *key =
                call.keys[token] + position * call.key_stride + kv_head * call.head_dim;
            const float *value =
                call.values[token] + position * call.value_stride + kv_head * call.value_dim;
            float score = 0;
            for (uint32_t i = 0; i < call.head_dim; ++i) score += query[i] * key[i];
            score *= call.scale;
            const float larger = std::max(largest, score);
            const float shrink = std::exp(largest - larger), weight = std::exp(score - larger);
            largest = larger;
            total = total * shrink + weight;
            for (uint32_t i = 0; i < call.value_dim; ++i)
                output[i] = output[i] * shrink + weight * value[i];
        }
        for (uint32_t i = 0; i < call.value_dim; ++i) output[i] /= total;
    });
}

void widen(const matrix &from, uint32_t row, float *out) {
    for (uint32_t column = 0; column < from.columns; ++column)
        out[column] = weight_at(from, row, column);
}

void to_half(const float *from, size_t count, uint16_t *out) {
    for (size_t i = 0; i < count; ++i) out[i] = float_to_half(from[i]);
}

void normalise(norm_kind kind, const norm_weights &by, float epsilon, uint32_t tokens,
               uint32_t width, const_rows input, rows output) {
    for (uint32_t token = 0; token < tokens; ++token) {
        const float *from = input.data + token * input.stride;
        float *to = output.data + token * output.stride;
        double mean = 0, squares = 0;
        if (kind == norm_kind::layer) {
            for (uint32_t i = 0; i < width; ++i) mean += from[i];
            mean /= width;
        }
        for (uint32_t i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
        const double scale = 1 / std::sqrt(squares / width + epsilon);
        for (uint32_t i = 0; i < width; ++i)
            to[i] = static_cast<float>((from[i] - mean) * scale) * by.weight[i] +
                    (by.bias.empty() ? 0 : by.bias[i]);
    }
}

}  // namespace moorage::core

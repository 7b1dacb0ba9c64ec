// weights_read.h - one lane's part of a row of weights times inputs, for every type of weights.
#pragma once

#include "core/execute/gpu/arithmetic/host_device.h"
#include "core/model/model_config.h"
#include "core/model/weights.h"

namespace moorage::core::gpu {

// How weights of a format become floats: groups of `count` values that lie in 16 bytes of the row,
// and single ones, which is slow.
template <weight_type type>
struct widening;

template <>
struct widening<weight_type::f32> {
    static constexpr uint32_t count = 4;
    MOORAGE_HOST_DEVICE static void group(const std::byte *row, const std::byte *, uint32_t number,
                                          float *out) {
        const words16 from = load_stream(row + number * 16ull);
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) out[i] = float_of_bits(from.word[i]);
    }
    MOORAGE_HOST_DEVICE static float at(const std::byte *row, const std::byte *, uint32_t column) {
        return reinterpret_cast<const float *>(row)[column];
    }
};
template <>
struct widening<weight_type::bf16> {
    static constexpr uint32_t count = 8;
    MOORAGE_HOST_DEVICE static void group(const std::byte *row, const std::byte *, uint32_t number,
                                          float *out) {
        const words16 from = load_stream(row + number * 16ull);
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            out[2 * i] = float_of_bits(from.word[i] << 16);
            out[2 * i + 1] = float_of_bits(from.word[i] & 0xffff0000u);
        }
    }
    MOORAGE_HOST_DEVICE static float at(const std::byte *row, const std::byte *, uint32_t column) {
        return float_of_bf16(reinterpret_cast<const uint16_t *>(row)[column]);
    }
};
template <>
struct widening<weight_type::f16> {
    static constexpr uint32_t count = 8;
    MOORAGE_HOST_DEVICE static void group(const std::byte *row, const std::byte *, uint32_t number,
                                          float *out) {
        const words16 from = load_stream(row + number * 16ull);
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
            out[2 * i] = float_of_f16(static_cast<uint16_t>(from.word[i]));
            out[2 * i + 1] = float_of_f16(static_cast<uint16_t>(from.word[i] >> 16));
        }
    }
    MOORAGE_HOST_DEVICE static float at(const std::byte *row, const std::byte *, uint32_t column) {
        return float_of_f16(reinterpret_cast<const uint16_t *>(row)[column]);
    }
};
template <>
struct widening<weight_type::mxfp4> {
    static constexpr uint32_t count = 32;
    MOORAGE_HOST_DEVICE static void group(const std::byte *row, const std::byte *scales,
                                          uint32_t number, float *out) {
        const float scale = float_of_scale(static_cast<uint32_t>(scales[number]));
        const words16 from = load_stream(row + number * 16ull);
        MOORAGE_UNROLL
        for (uint32_t i = 0; i < 32; ++i)
            out[i] = float_of_fp4(from.word[i / 8] >> i % 8 * 4) * scale;
    }
    MOORAGE_HOST_DEVICE static float at(const std::byte *row, const std::byte *scales,
                                        uint32_t column) {
        return float_of_fp4(static_cast<uint32_t>(row[column / 2]) >> column % 2 * 4) *
               float_of_scale(static_cast<uint32_t>(scales[column / 32]));
    }
};

// A constant, as device code calls no function of the host, not even for one.
template <weight_type type>
inline constexpr bool is_read = on_gpu(type);

// Of a type that is not known before.
template <size_t index = 0>
MOORAGE_HOST_DEVICE inline float weight_of(weight_type type, const std::byte *row,
                                           const std::byte *scales, uint32_t column) {
    if constexpr (index < weight_format_count) {
        constexpr weight_type candidate = weight_formats[index].type;
        if constexpr (is_read<candidate>)
            if (type == candidate) return widening<candidate>::at(row, scales, column);
        return weight_of<index + 1>(type, row, scales, column);
    } else {
        return 0;
    }
}

MOORAGE_HOST_DEVICE inline const std::byte *row_of(const matrix &of, uint32_t row) {
    return of.data + row * of.row_bytes;
}
MOORAGE_HOST_DEVICE inline const std::byte *scales_of(const matrix &of, uint32_t row) {
    return of.scales ? of.scales + row * of.scale_row_bytes : nullptr;
}

// Inputs of the tokens a warp works on at a time: token t begins at base + offset[t].
template <uint32_t tokens_max>
struct token_inputs {
    const float *base;
    uint64_t offset[tokens_max];
    uint32_t count;
    bool aligned;  // to 16 bytes, all of them
};

// Adds to sums[t] what `lane` of a warp contributes to the sum over columns [begin, end): every
// 32nd group of 16 bytes, then every 32nd of the values left. `begin` is a multiple of what a
// vector holds.
template <weight_type type, uint32_t tokens_max>
MOORAGE_HOST_DEVICE inline void add_lane(const std::byte *row, const std::byte *scales,
                                         uint32_t begin, uint32_t end, uint32_t lane,
                                         const token_inputs<tokens_max> &inputs, float *sums) {
    constexpr uint32_t width = widening<type>::count;
    uint32_t done = begin;
    if (inputs.aligned && aligned16(row) && begin % width == 0) {
        const uint32_t last = end / width;
        MOORAGE_UNROLL
        for (uint32_t vector = begin / width + lane; vector < last; vector += lanes) {
            float values[width];
            widening<type>::group(row, scales, vector, values);
            MOORAGE_UNROLL
            for (uint32_t token = 0; token < tokens_max; ++token) {
                if (token >= inputs.count) break;
                const float *input = inputs.base + inputs.offset[token] + vector * width;
                MOORAGE_UNROLL
                for (uint32_t i = 0; i < width; i += 4) {
                    const floats4 four = load4(input + i);
                    MOORAGE_UNROLL
                    for (uint32_t n = 0; n < 4; ++n) sums[token] += values[i + n] * four.at[n];
                }
            }
        }
        done = last * width;
    }
    for (uint32_t column = done + lane; column < end; column += lanes) {
        const float value = widening<type>::at(row, scales, column);
        MOORAGE_UNROLL
        for (uint32_t token = 0; token < tokens_max; ++token)
            if (token < inputs.count)
                sums[token] += value * inputs.base[inputs.offset[token] + column];
    }
}

MOORAGE_HOST_DEVICE inline float activated(activation_kind kind, float limit, float gate,
                                           float up) {
    switch (kind) {
        case activation_kind::silu:
            return gate * sigmoid(gate) * up;
        case activation_kind::gelu:
            return 0.5f * gate * (1 + erff(gate * 0.70710678f)) * up;
        case activation_kind::gelu_tanh:
            return 0.5f * gate *
                   (1 + tanhf(0.79788456f * (gate + 0.044715f * gate * gate * gate))) * up;
        case activation_kind::clamped_swiglu: {
            // 1, unless one of them is no finite number: the limits would hide that.
            const float one = 1 + ((gate - gate) + (up - up));
            const float low = gate < limit ? gate : limit;
            const float both = up > limit ? limit : up < -limit ? -limit : up;
            return (both + one) * low * sigmoid(1.702f * low);
        }
    }
    return 0;
}

}  // namespace moorage::core::gpu

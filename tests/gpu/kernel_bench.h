// kernel_bench.h - shared by the checks of kernels: random numbers, memory of a device, slow
// products.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/execute/gpu/arithmetic/weights_read.h"
#include "core/model/weight_values.h"
#include "tests/unit/random_blocks.h"

namespace moorage::core::gpu {

struct case_result {
    std::string name;
    double error;  // largest difference over the largest expected value; not finite: infinite
    double limit;
};

// A matrix of a type with its values.
struct random_matrix {
    std::vector<std::byte> data, scales;
    std::vector<uint32_t> group_of;
    std::vector<double> values;
    matrix shape;
    double at(uint32_t row, uint32_t column) const {
        return values[uint64_t{row} * shape.columns + column];
    }
};

// Device: a Device of forward.h; Memory: allocate(bytes), write(target, source, bytes),
// read(target, source, bytes), finish().
template <class Device, class Memory>
class kernel_bench {
public:
    kernel_bench(Device &device, Memory &memory, uint64_t seed)
        : device_(device), memory_(memory), random_(seed) {}

    Device &device() { return device_; }
    std::vector<case_result> results;

    double uniform(double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random_);
    }
    uint32_t below(uint32_t limit) {
        return std::uniform_int_distribution<uint32_t>(0, limit - 1)(random_);
    }
    std::vector<float> floats(uint64_t count, double scale = 1) {
        std::vector<float> values(count);
        for (float &value : values) value = static_cast<float>(uniform(-scale, scale));
        return values;
    }

    template <class Value>
    Value *put(const std::vector<Value> &values) {
        auto *target = reinterpret_cast<Value *>(memory_.allocate(values.size() * sizeof(Value)));
        memory_.write(target, values.data(), values.size() * sizeof(Value));
        return target;
    }
    // All bits set: NaN, so that unwritten values show.
    template <class Value>
    Value *poisoned(uint64_t count) {
        std::vector<Value> values(count);
        std::memset(values.data(), 0xff, count * sizeof(Value));
        return put(values);
    }
    template <class Value>
    std::vector<Value> get(const Value *source, uint64_t count) {
        std::vector<Value> values(count);
        memory_.finish();
        memory_.read(values.data(), source, count * sizeof(Value));
        return values;
    }

    random_matrix make_matrix(weight_type type, uint32_t rows, uint32_t columns) {
        random_matrix weights;
        weights.shape = packed_matrix(type, rows, columns, nullptr);
        if (type == weight_type::int4_ordered) weights.shape.scale_row_bytes = groups * 8;
        weights.data.resize(rows * weights.shape.row_bytes);
        weights.scales.resize(scale_rows_of(weights.shape) * weights.shape.scale_row_bytes);
        if (in_groups(type)) {
            fill_groups(weights);
        } else {
            for (std::byte &scale : weights.scales) scale = static_cast<std::byte>(124 + below(6));
            for (uint32_t r = 0; r < rows; ++r)
                for (uint32_t c = 0; c < columns; ++c) fill(weights, r, c);
        }
        upload(weights);
        return weights;
    }
    // A matrix of these bytes, with values by the definition.
    random_matrix matrix_of(weight_type type, uint32_t rows, uint32_t columns,
                            std::vector<std::byte> bytes) {
        random_matrix weights;
        weights.shape = packed_matrix(type, rows, columns, nullptr);
        weights.data = std::move(bytes);
        decode_values(weights);
        upload(weights);
        return weights;
    }

    // Compares bit for bit; all NaNs are equal.
    void expect_bits(const std::string &name, const std::vector<float> &is,
                     const std::vector<double> &expected) {
        uint64_t wrong = is.size() == expected.size() ? 0 : expected.size();
        for (size_t i = 0; i < expected.size() && wrong == 0; ++i) {
            const auto should = static_cast<float>(expected[i]);
            wrong += std::isnan(should) ? !std::isnan(is[i])
                                        : bits_of_float(is[i]) != bits_of_float(should);
        }
        results.push_back({name + " to the bit", static_cast<double>(wrong), 0});
    }

    void expect(const std::string &name, const std::vector<float> &is,
                const std::vector<double> &expected, double limit) {
        double most = 0, apart = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
            most = std::max(most, std::abs(expected[i]));
            const double difference = std::abs(static_cast<double>(is[i]) - expected[i]);
            apart = std::isfinite(difference) ? std::max(apart, difference) : INFINITY;
            if (!std::isfinite(apart)) break;
        }
        results.push_back({name, most > 0 ? apart / most : apart, limit});
    }

private:
    static constexpr uint32_t groups = 5;  // of columns in an order of their own

    void upload(random_matrix &weights) {
        weights.shape.data = put(weights.data);
        weights.shape.scales = weights.scales.empty() ? nullptr : put(weights.scales);
        weights.shape.group_of = weights.group_of.empty() ? nullptr : put(weights.group_of);
    }
    void fill_groups(random_matrix &weights) {
        const matrix &shape = weights.shape;
        for (std::byte &byte : weights.data) byte = static_cast<std::byte>(random_());
        for (uint64_t row = 0; row < shape.rows; ++row)
            moderate_row(random_, shape.type,
                         {&weights.data[row * shape.row_bytes], shape.row_bytes});
        std::vector<float> scales(weights.scales.size() / sizeof(float));
        moderate_scales_apart(random_, shape.type, scales);
        if (!scales.empty())
            std::memcpy(weights.scales.data(), scales.data(), weights.scales.size());
        if (shape.type == weight_type::int4_ordered)
            for (uint32_t i = 0; i < shape.columns; ++i) weights.group_of.push_back(below(groups));
        decode_values(weights);
    }
    static void decode_values(random_matrix &weights) {
        matrix host_matrix = weights.shape;
        host_matrix.data = weights.data.data();
        host_matrix.scales = weights.scales.empty() ? nullptr : weights.scales.data();
        host_matrix.group_of = weights.group_of.data();
        for (uint32_t row = 0; row < host_matrix.rows; ++row)
            for (uint32_t column = 0; column < host_matrix.columns; ++column)
                weights.values.push_back(weight_at(host_matrix, row, column));
    }
    void fill(random_matrix &weights, uint32_t row, uint32_t column) {
        const auto value = static_cast<float>(uniform(-1, 1));
        std::byte *row_data = weights.data.data() + row * weights.shape.row_bytes;
        double kept = 0;
        const auto store = [&](auto bits) {
            std::memcpy(row_data + column * sizeof(bits), &bits, sizeof(bits));
        };
        switch (weights.shape.type) {
            case weight_type::f32:
                store(value);
                kept = value;
                break;
            case weight_type::f16:
                store(half_of_float(value));
                kept = float_of_half(half_of_float(value));
                break;
            case weight_type::bf16: {
                const uint32_t bits = std::bit_cast<uint32_t>(value) & 0xffff0000u;
                store(static_cast<uint16_t>(bits >> 16));
                kept = std::bit_cast<float>(bits);
                break;
            }
            case weight_type::mxfp4: {
                static constexpr double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
                const uint32_t code = below(16);
                row_data[column / 2] |= static_cast<std::byte>(code << column % 2 * 4);
                const auto scale = std::to_integer<int>(
                    weights.scales[row * weights.shape.scale_row_bytes + column / 32]);
                kept = std::ldexp(magnitudes[code & 7] * (code & 8 ? -1 : 1), scale - 127);
                break;
            }
            default:  // in groups
                break;
        }
        weights.values.push_back(kept);
    }

    Device &device_;
    Memory &memory_;
    std::mt19937_64 random_;
};

// A Memory in host memory, for the device of loops.
class host_memory {
public:
    std::byte *allocate(uint64_t bytes) {
        blocks_.emplace_back(bytes / 16 + 1);
        return reinterpret_cast<std::byte *>(blocks_.back().data());
    }
    void write(void *target, const void *source, uint64_t bytes) {
        std::memcpy(target, source, bytes);
    }
    void read(void *target, const void *source, uint64_t bytes) {
        std::memcpy(target, source, bytes);
    }
    void finish() {}

private:
    std::vector<std::vector<words16>> blocks_;
};

}  // namespace moorage::core::gpu

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

// Device: a Device of forward.h; Memory: allocate(bytes), write(to, from, bytes), read(to, from,
// bytes), finish().
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
        std::vector<float> out(count);
        for (float &one : out) one = static_cast<float>(uniform(-scale, scale));
        return out;
    }

    template <class Value>
    Value *put(const std::vector<Value> &values) {
        auto *out = reinterpret_cast<Value *>(memory_.allocate(values.size() * sizeof(Value)));
        memory_.write(out, values.data(), values.size() * sizeof(Value));
        return out;
    }
    // All bits set: NaN, so that unwritten values show.
    template <class Value>
    Value *poisoned(uint64_t count) {
        std::vector<Value> values(count);
        std::memset(values.data(), 0xff, count * sizeof(Value));
        return put(values);
    }
    template <class Value>
    std::vector<Value> get(const Value *from, uint64_t count) {
        std::vector<Value> out(count);
        memory_.finish();
        memory_.read(out.data(), from, count * sizeof(Value));
        return out;
    }

    random_matrix make_matrix(weight_type type, uint32_t rows, uint32_t columns) {
        random_matrix out;
        out.shape = packed_matrix(type, rows, columns, nullptr);
        if (type == weight_type::int4_ordered) out.shape.scale_row_bytes = groups * 8;
        out.data.resize(rows * out.shape.row_bytes);
        out.scales.resize(scale_rows_of(out.shape) * out.shape.scale_row_bytes);
        if (in_groups(type)) {
            fill_groups(out);
        } else {
            for (std::byte &one : out.scales) one = static_cast<std::byte>(124 + below(6));
            for (uint32_t r = 0; r < rows; ++r)
                for (uint32_t c = 0; c < columns; ++c) fill(out, r, c);
        }
        place(out);
        return out;
    }
    // A matrix of these bytes, with values by the definition.
    random_matrix matrix_of(weight_type type, uint32_t rows, uint32_t columns,
                            std::vector<std::byte> bytes) {
        random_matrix out;
        out.shape = packed_matrix(type, rows, columns, nullptr);
        out.data = std::move(bytes);
        define(out);
        place(out);
        return out;
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

    void place(random_matrix &of) {
        of.shape.data = put(of.data);
        of.shape.scales = of.scales.empty() ? nullptr : put(of.scales);
        of.shape.group_of = of.group_of.empty() ? nullptr : put(of.group_of);
    }
    void fill_groups(random_matrix &of) {
        const matrix &shape = of.shape;
        for (std::byte &one : of.data) one = static_cast<std::byte>(random_());
        for (uint64_t row = 0; row < shape.rows; ++row)
            moderate_row(random_, shape.type, {&of.data[row * shape.row_bytes], shape.row_bytes});
        std::vector<float> scales(of.scales.size() / sizeof(float));
        moderate_scales_apart(random_, shape.type, scales);
        if (!scales.empty()) std::memcpy(of.scales.data(), scales.data(), of.scales.size());
        if (shape.type == weight_type::int4_ordered)
            for (uint32_t i = 0; i < shape.columns; ++i) of.group_of.push_back(below(groups));
        define(of);
    }
    static void define(random_matrix &of) {
        matrix here = of.shape;
        here.data = of.data.data();
        here.scales = of.scales.empty() ? nullptr : of.scales.data();
        here.group_of = of.group_of.data();
        for (uint32_t row = 0; row < here.rows; ++row)
            for (uint32_t column = 0; column < here.columns; ++column)
                of.values.push_back(weight_at(here, row, column));
    }
    void fill(random_matrix &of, uint32_t row, uint32_t column) {
        const auto value = static_cast<float>(uniform(-1, 1));
        std::byte *at = of.data.data() + row * of.shape.row_bytes;
        double kept = 0;
        const auto store = [&](auto bits) {
            std::memcpy(at + column * sizeof(bits), &bits, sizeof(bits));
        };
        switch (of.shape.type) {
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
                at[column / 2] |= static_cast<std::byte>(code << column % 2 * 4);
                const auto scale =
                    std::to_integer<int>(of.scales[row * of.shape.scale_row_bytes + column / 32]);
                kept = std::ldexp(magnitudes[code & 7] * (code & 8 ? -1 : 1), scale - 127);
                break;
            }
            default:  // in groups
                break;
        }
        of.values.push_back(kept);
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
    void write(void *to, const void *from, uint64_t bytes) { std::memcpy(to, from, bytes); }
    void read(void *to, const void *from, uint64_t bytes) { std::memcpy(to, from, bytes); }
    void finish() {}

private:
    std::vector<std::vector<words16>> blocks_;
};

}  // namespace moorage::core::gpu

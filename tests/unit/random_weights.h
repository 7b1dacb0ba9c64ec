// random_weights.h - weight matrices of any type with their values in double, and rows of
// activations whose outputs are poisoned, for tests of kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/execute/cpu/kernels.h"
#include "core/model/weight_values.h"
#include "tests/unit/random_blocks.h"

namespace moorage::core {

// The value of an IEEE half, by its definition.
inline double value_of_half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    return sign * std::ldexp(1024 + fraction, exponent - 25);
}

inline double value_of_bfloat(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

// A matrix at an odd address, with gaps between its rows that hold garbage.
class random_matrix {
public:
    random_matrix(std::mt19937_64 &random, weight_type type, uint32_t rows, uint32_t columns,
                  uint32_t gap_bytes = 6)
        : values_(size_t{rows} * columns) {
        static constexpr double FP4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        matrix_.type = type;
        matrix_.rows = rows;
        matrix_.columns = columns;
        matrix_.row_bytes = bytes_of_columns(type, columns) + gap_bytes;
        matrix_.scale_row_bytes = columns / 32 + gap_bytes;
        if (in_groups(type)) {
            fill_groups(random);
            return;
        }
        bytes_.resize(matrix_.row_bytes * rows + 1);
        scales_.resize(matrix_.scale_row_bytes * rows + 1);
        for (auto &byte : bytes_) byte = std::byte(random());
        for (auto &byte : scales_) byte = std::byte(118 + random() % 8);
        matrix_.data = bytes_.data() + 1;
        if (type == weight_type::mxfp4) matrix_.scales = scales_.data() + 1;
        std::normal_distribution<float> normal(0, 0.3f);
        for (uint32_t row = 0; row < rows; ++row)
            for (uint32_t column = 0; column < columns; ++column) {
                std::byte *const element =
                    bytes_.data() + 1 + row * matrix_.row_bytes +
                    (type == weight_type::mxfp4 ? column / 2 : bytes_of_columns(type, column));
                double &value = values_[size_t{row} * columns + column];
                if (type == weight_type::mxfp4) {
                    const auto pair = std::to_integer<uint32_t>(*element);
                    const uint32_t code = column % 2 ? pair >> 4 : pair & 15;
                    const auto exponent = std::to_integer<int>(
                        scales_[1 + row * matrix_.scale_row_bytes + column / 32]);
                    value = std::ldexp(code & 8 ? -FP4[code & 7] : FP4[code & 7], exponent - 127);
                } else if (type == weight_type::f32) {
                    const float single = normal(random);
                    std::memcpy(element, &single, sizeof single);
                    value = single;
                } else {
                    // Exponents around those of 0.1, all signs and fractions.
                    const auto noise = static_cast<uint32_t>(random());
                    const uint16_t bits = static_cast<uint16_t>(
                        type == weight_type::f16
                            ? (noise & 0x83ff) | (8 + (noise >> 16) % 6) << 10
                            : (noise & 0x807f) | (119 + (noise >> 16) % 6) << 7);
                    std::memcpy(element, &bits, sizeof bits);
                    value = type == weight_type::f16 ? value_of_half(bits) : value_of_bfloat(bits);
                }
            }
    }
    random_matrix(const random_matrix &) = delete;

    const matrix &view() const { return matrix_; }
    double at(uint32_t row, uint32_t column) const {
        return values_[size_t{row} * matrix_.columns + column];
    }

private:
    // Random codes, with scales of moderate size in formats that have them. The values follow the
    // definition, which weight_values_test.cpp compares with others' values.
    void fill_groups(std::mt19937_64 &random) {
        const weight_format &format = format_of(matrix_.type);
        bytes_.resize(matrix_.row_bytes * matrix_.rows + 1);
        for (auto &byte : bytes_) byte = std::byte(random());
        matrix_.data = bytes_.data() + 1;
        for (uint32_t row = 0; row < matrix_.rows; ++row)
            moderate_row(random, matrix_.type,
                         {bytes_.data() + 1 + row * matrix_.row_bytes,
                          bytes_of_columns(matrix_.type, matrix_.columns)});
        if (format.scale_bytes != 0) fill_scales_apart(random);
        for (uint32_t row = 0; row < matrix_.rows; ++row)
            for (uint32_t column = 0; column < matrix_.columns; ++column)
                values_[size_t{row} * matrix_.columns + column] = weight_at(matrix_, row, column);
    }
    void fill_scales_apart(std::mt19937_64 &random) {
        const bool ordered = matrix_.type == weight_type::int4_ordered;
        const uint32_t groups = ordered ? 5 : (matrix_.columns + 127) / 128;
        matrix_.scale_row_bytes = groups * (ordered ? 8 : 4);
        floats_.resize(matrix_.scale_row_bytes / sizeof(float) * matrix_.rows);
        moderate_scales_apart(random, matrix_.type, floats_);
        for (uint32_t i = 0; i < matrix_.columns; ++i)
            groups_.push_back(static_cast<uint32_t>(random() % groups));
        matrix_.scales = reinterpret_cast<const std::byte *>(floats_.data());
        if (ordered) matrix_.group_of = groups_.data();
    }

    matrix matrix_;
    std::vector<std::byte> bytes_, scales_;
    std::vector<float> floats_;
    std::vector<uint32_t> groups_;
    std::vector<double> values_;  // [rows, columns]
};

// Rows further apart than their width; NaN in unused places.
class float_rows {
public:
    float_rows(uint32_t count, uint32_t width, uint32_t gap = 3)
        : stride_(width + gap),
          values_(size_t{count} * stride_ + 1, std::numeric_limits<float>::quiet_NaN()) {}
    float_rows(std::mt19937_64 &random, uint32_t count, uint32_t width, uint32_t gap = 3)
        : float_rows(count, width, gap) {
        std::normal_distribution<float> normal;
        for (uint32_t row = 0; row < count; ++row)
            for (uint32_t i = 0; i < width; ++i) at(row, i) = normal(random);
    }
    rows view() { return {values_.data() + 1, stride_}; }
    float &at(uint32_t row, uint32_t i) { return values_[1 + row * stride_ + i]; }
    float at(uint32_t row, uint32_t i) const { return values_[1 + row * stride_ + i]; }
    // Compares byte for byte, with the gaps and their NaN.
    bool same_bits(const float_rows &right) const {
        return values_.size() == right.values_.size() &&
               std::memcmp(values_.data(), right.values_.data(), values_.size() * sizeof(float)) ==
                   0;
    }

private:
    size_t stride_;
    std::vector<float> values_;
};

inline std::vector<float> random_floats(std::mt19937_64 &random, size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float &value : values) value = normal(random);
    return values;
}

}  // namespace moorage::core

// target.cpp - reads and checks rows, and writes them in their tensor's form.
#include "tools/convert/target.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "tools/convert/quantise.h"
#include "core/model/weight_values.h"

namespace moorage::core {

namespace {

constexpr uint64_t fp8_block = 128;

uint64_t rows_of_shape(const std::vector<uint64_t> &shape) {
    uint64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return rows;
}

// Formats that weights are usually published in have faster readers than their definition.
void read_placed(const placed_row &placed, std::span<float> values) {
    const std::byte *data = placed.source->data + placed.row * placed.source->row_bytes;
    if (placed.source->type == weight_type::f32) {
        std::memcpy(values.data(), data, values.size_bytes());
    } else if (placed.source->type == weight_type::bf16) {
        for (size_t i = 0; i < values.size(); ++i) {
            uint16_t bits;
            std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
            values[i] = std::bit_cast<float>(uint32_t{bits} << 16);
        }
    } else {
        read_row(*placed.source, placed.row, values);
    }
}

status check_row(const target_tensor &tensor, uint64_t row, std::span<const float> values) {
    const size_t position = first_non_finite(values);
    if (position == values.size()) return success();
    return error{
        format("tensor {} holds {} in row {} at {}", tensor.name, values[position], row, position)};
}

status encode_values(const target_tensor &tensor, uint64_t first, uint64_t count,
                     std::span<std::byte> target) {
    std::vector<float> values(tensor.source.columns());
    const uint64_t bytes = tensor.row_bytes();
    for (uint64_t i = 0; i < count; ++i) {
        const std::span<std::byte> target_row = target.subspan(i * bytes, bytes);
        tensor.source.read(first + i, values);
        if (const status fine = check_row(tensor, first + i, values); !fine) return fine;
        const placed_row placed =
            tensor.source.place ? tensor.source.place(first + i) : placed_row{};
        if (placed.source != nullptr && placed.source->type == tensor.type &&
            placed.source->scales == nullptr)
            std::memcpy(target_row.data(),
                        placed.source->data + placed.row * placed.source->row_bytes,
                        target_row.size());
        else
            quantise_row(tensor.type, values, target_row);
    }
    return success();
}

// For up to 128 rows: the greatest magnitude of every 128 columns.
status read_block(const target_tensor &tensor, uint64_t first, uint64_t count,
                  std::vector<float> &values, std::vector<float> &scales) {
    const uint64_t columns = tensor.source.columns();
    values.resize(count * columns);
    scales.assign((columns + fp8_block - 1) / fp8_block, 0);
    for (uint64_t i = 0; i < count; ++i) {
        const std::span<float> row = std::span(values).subspan(i * columns, columns);
        tensor.source.read(first + i, row);
        if (const status fine = check_row(tensor, first + i, row); !fine) return fine;
        for (uint64_t column = 0; column < columns; ++column)
            scales[column / fp8_block] =
                std::max(scales[column / fp8_block], std::abs(row[column]));
    }
    for (float &scale : scales) scale = fp8_scale(scale);
    return success();
}

status encode_fp8(const target_tensor &tensor, uint64_t first, uint64_t count,
                  std::span<std::byte> target) {
    std::vector<float> values, scales;
    const uint64_t columns = tensor.source.columns();
    for (uint64_t block_row = 0; block_row < count; block_row += fp8_block) {
        const uint64_t rows = std::min(fp8_block, count - block_row);
        if (const status done = read_block(tensor, first + block_row, rows, values, scales); !done)
            return done;
        for (uint64_t i = 0; i < values.size(); ++i)
            target[block_row * columns + i] =
                std::byte(e4m3_of_float(values[i] / scales[i % columns / fp8_block]));
    }
    return success();
}

status encode_scales(const target_tensor &tensor, uint64_t first, uint64_t count,
                     std::span<std::byte> target) {
    std::vector<float> values, scales;
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t top = (first + i) * fp8_block;
        const uint64_t rows = std::min(fp8_block, tensor.source.rows() - top);
        if (const status done = read_block(tensor, top, rows, values, scales); !done) return done;
        std::memcpy(target.data() + i * tensor.row_bytes(), scales.data(), tensor.row_bytes());
    }
    return success();
}

}  // namespace

uint64_t source_rows::rows() const { return rows_of_shape(shape); }

void source_rows::read(uint64_t row, std::span<float> values) const {
    assert(values.size() == columns());
    if (place)
        read_placed(place(row), values);
    else
        compute(row, values);
}

source_rows rows_of(const matrix &weights) {
    return {{weights.rows, weights.columns},
            [weights](uint64_t row) {
                return placed_row{&weights, static_cast<uint32_t>(row)};
            },
            {}};
}

source_rows single_row_of(std::span<const float> values) {
    source_rows rows =
        rows_of(packed_matrix(weight_type::f32, 1, static_cast<uint32_t>(values.size()),
                              reinterpret_cast<const std::byte *>(values.data())));
    rows.shape = {values.size()};
    return rows;
}

uint64_t target_tensor::rows() const { return rows_of_shape(shape); }

uint64_t target_tensor::row_bytes() const {
    return form == row_form::fp8_codes ? shape.back() : bytes_of_columns(type, shape.back());
}

target_tensor make_target(std::string name, weight_type type, source_rows source) {
    std::vector<uint64_t> shape = source.shape;
    return {std::move(name), std::move(shape), type, std::move(source)};
}

status encode_rows(const target_tensor &tensor, uint64_t first, uint64_t count,
                   std::span<std::byte> target) {
    switch (tensor.form) {
        case row_form::values:
            return encode_values(tensor, first, count, target);
        case row_form::fp8_codes:
            return encode_fp8(tensor, first, count, target);
        case row_form::fp8_scales:
            return encode_scales(tensor, first, count, target);
    }
    return success();
}

}  // namespace moorage::core

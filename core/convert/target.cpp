// target.cpp - reads and checks rows, and writes them in their tensor's form.
#include "core/convert/target.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "core/convert/quantise.h"
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
void read_placed(const placed_row &at, std::span<float> out) {
    const std::byte *data = at.of->data + at.row * at.of->row_bytes;
    if (at.of->type == weight_type::f32) {
        std::memcpy(out.data(), data, out.size_bytes());
    } else if (at.of->type == weight_type::bf16) {
        for (size_t i = 0; i < out.size(); ++i) {
            uint16_t bits;
            std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
            out[i] = std::bit_cast<float>(uint32_t{bits} << 16);
        }
    } else {
        read_row(*at.of, at.row, out);
    }
}

status check_row(const target_tensor &of, uint64_t row, std::span<const float> values) {
    const size_t odd = first_odd(values);
    if (odd == values.size()) return success();
    return error{format("tensor {} holds {} in row {} at {}", of.name, values[odd], row, odd)};
}

status encode_values(const target_tensor &of, uint64_t first, uint64_t count,
                     std::span<std::byte> out) {
    std::vector<float> values(of.from.columns());
    const uint64_t bytes = of.row_bytes();
    for (uint64_t i = 0; i < count; ++i) {
        const std::span<std::byte> to = out.subspan(i * bytes, bytes);
        of.from.read(first + i, values);
        if (const status fine = check_row(of, first + i, values); !fine) return fine;
        const placed_row at = of.from.place ? of.from.place(first + i) : placed_row{};
        if (at.of != nullptr && at.of->type == of.type && at.of->scales == nullptr)
            std::memcpy(to.data(), at.of->data + at.row * at.of->row_bytes, to.size());
        else
            quantise_row(of.type, values, to);
    }
    return success();
}

// For up to 128 rows: the greatest magnitude of every 128 columns.
status read_block(const target_tensor &of, uint64_t first, uint64_t count,
                  std::vector<float> &values, std::vector<float> &scales) {
    const uint64_t columns = of.from.columns();
    values.resize(count * columns);
    scales.assign((columns + fp8_block - 1) / fp8_block, 0);
    for (uint64_t i = 0; i < count; ++i) {
        const std::span<float> row = std::span(values).subspan(i * columns, columns);
        of.from.read(first + i, row);
        if (const status fine = check_row(of, first + i, row); !fine) return fine;
        for (uint64_t column = 0; column < columns; ++column)
            scales[column / fp8_block] =
                std::max(scales[column / fp8_block], std::abs(row[column]));
    }
    for (float &scale : scales) scale = fp8_scale(scale);
    return success();
}

status encode_fp8(const target_tensor &of, uint64_t first, uint64_t count,
                  std::span<std::byte> out) {
    std::vector<float> values, scales;
    const uint64_t columns = of.from.columns();
    for (uint64_t at = 0; at < count; at += fp8_block) {
        const uint64_t rows = std::min(fp8_block, count - at);
        if (const status done = read_block(of, first + at, rows, values, scales); !done)
            return done;
        for (uint64_t i = 0; i < values.size(); ++i)
            out[at * columns + i] =
                std::byte(e4m3_of_float(values[i] / scales[i % columns / fp8_block]));
    }
    return success();
}

status encode_scales(const target_tensor &of, uint64_t first, uint64_t count,
                     std::span<std::byte> out) {
    std::vector<float> values, scales;
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t top = (first + i) * fp8_block;
        const uint64_t rows = std::min(fp8_block, of.from.rows() - top);
        if (const status done = read_block(of, top, rows, values, scales); !done) return done;
        std::memcpy(out.data() + i * of.row_bytes(), scales.data(), of.row_bytes());
    }
    return success();
}

}  // namespace

uint64_t source_rows::rows() const { return rows_of_shape(shape); }

void source_rows::read(uint64_t row, std::span<float> out) const {
    assert(out.size() == columns());
    if (place)
        read_placed(place(row), out);
    else
        make(row, out);
}

source_rows rows_of(const matrix &of) {
    return {{of.rows, of.columns},
            [of](uint64_t row) {
                return placed_row{&of, static_cast<uint32_t>(row)};
            },
            {}};
}

source_rows row_of(std::span<const float> values) {
    source_rows made =
        rows_of(packed_matrix(weight_type::f32, 1, static_cast<uint32_t>(values.size()),
                              reinterpret_cast<const std::byte *>(values.data())));
    made.shape = {values.size()};
    return made;
}

uint64_t target_tensor::rows() const { return rows_of_shape(shape); }

uint64_t target_tensor::row_bytes() const {
    return form == row_form::fp8_codes ? shape.back() : bytes_of_columns(type, shape.back());
}

target_tensor make_target(std::string name, weight_type type, source_rows from) {
    std::vector<uint64_t> shape = from.shape;
    return {std::move(name), std::move(shape), type, std::move(from)};
}

status encode_rows(const target_tensor &of, uint64_t first, uint64_t count,
                   std::span<std::byte> out) {
    switch (of.form) {
        case row_form::values:
            return encode_values(of, first, count, out);
        case row_form::fp8_codes:
            return encode_fp8(of, first, count, out);
        case row_form::fp8_scales:
            return encode_scales(of, first, count, out);
    }
    return success();
}

}  // namespace moorage::core

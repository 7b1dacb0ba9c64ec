// target.h - tensors to write, and the source of their rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/model/weights.h"

namespace moorage::core {

struct placed_row {
    const matrix *source;
    uint32_t row;
};

// Rows of one length. Either each row exists in memory, or `compute` computes it.
struct source_rows {
    std::vector<uint64_t> shape;  // the length of a row comes last
    std::function<placed_row(uint64_t row)> place;
    std::function<void(uint64_t row, std::span<float> values)> compute;  // used if `place` is empty
    uint64_t rows() const;
    uint64_t columns() const { return shape.back(); }
    void read(uint64_t row, std::span<float> values) const;
};
// All rows of a borrowed matrix, or a vector as one row.
source_rows rows_of(const matrix &weights);
source_rows single_row_of(std::span<const float> values);

// The content of each written row.
enum class row_form : uint8_t {
    values,     // in the tensor's type
    fp8_codes,  // for blocks of 128 rows
    fp8_scales  // one row for 128 rows of the source
};

struct target_tensor {
    std::string name;
    std::vector<uint64_t> shape;  // the length of a row comes last
    weight_type type = usual_weights;
    source_rows source;
    row_form form = row_form::values;
    uint64_t rows() const;
    uint64_t row_bytes() const;
    uint64_t bytes() const { return rows() * row_bytes(); }
    // Number of rows that must be written together.
    uint64_t rows_per_unit() const { return form == row_form::fp8_codes ? 128 : 1; }
};
target_tensor make_target(std::string name, weight_type type, source_rows source);

// Writes rows first .. first + count - 1 to `target`. Bytes of the tensor's own type are copied
// unchanged. Fails if a weight is not finite.
status encode_rows(const target_tensor &tensor, uint64_t first, uint64_t count,
                   std::span<std::byte> target);

}  // namespace moorage::core

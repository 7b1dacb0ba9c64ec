// weights.cpp - sizes of matrices, and the parts in which experts are computed.
#include "core/model/weights.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace moorage::core {

namespace {

constexpr uint32_t row_parts_max = 8;

}  // namespace

matrix packed_matrix(weight_type type, uint32_t rows, uint32_t columns, const std::byte *data,
                     const std::byte *scales) {
    matrix packed;
    packed.data = data;
    packed.type = type;
    packed.rows = rows;
    packed.columns = columns;
    packed.row_bytes = bytes_of_columns(type, columns);
    packed.scale_row_bytes = scale_bytes_of(type, columns);
    if (packed.scale_row_bytes != 0) packed.scales = scales;
    return packed;
}

uint64_t scale_bytes_of(const matrix &weights) {
    // The scales of all groups, in their original order.
    if (weights.type == weight_type::int4_ordered) return weights.scale_row_bytes;
    return scale_bytes_of(weights.type, weights.columns);
}

uint32_t scale_rows_of(const matrix &weights) {
    const uint32_t shared = format_of(weights.type).scale_rows;
    return (weights.rows + shared - 1) / shared;
}

uint64_t bytes_of(const matrix &weights) {
    return weights.rows * bytes_of_columns(weights.type, weights.columns) +
           scale_rows_of(weights) * scale_bytes_of(weights);
}

expert_parts parts_of(uint32_t intermediate, uint32_t unit) {
    assert(intermediate > 0);
    if (unit > usual_part_unit && intermediate % unit != 0) return {intermediate, intermediate};
    const uint32_t least = (intermediate + row_parts_max - 1) / row_parts_max;
    return {intermediate, (least + unit - 1) / unit * unit};
}

uint32_t part_unit_of(const matrix &down) {
    if (down.type == weight_type::int4_ordered) return down.columns;
    return std::max(usual_part_unit, format_of(down.type).block);
}

uint32_t top_rows(uint32_t intermediate, double theta, uint32_t unit) {
    const expert_parts parts = parts_of(intermediate, unit);
    if (!(theta < 1)) return intermediate;
    const double wanted = std::max(theta, 0.0) * intermediate;
    uint32_t best = std::min(parts.part, intermediate);
    for (uint32_t count = 2; count <= parts.count(); ++count) {
        const uint32_t border = std::min(count * parts.part, intermediate);
        if (std::abs(border - wanted) < std::abs(best - wanted)) best = border;
    }
    return best;
}

}  // namespace moorage::core

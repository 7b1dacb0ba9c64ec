// weights.cpp - sizes of matrices, and the parts in which experts are computed.
#include "core/model/weights.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace moorage::core {

namespace {

constexpr uint32_t part_unit = 32, parts_max = 8;

uint64_t scale_bytes(weight_type type, uint64_t columns) {
    return type == weight_type::mxfp4 ? columns / 32 : 0;
}

}  // namespace

const char *name_of(weight_type type) {
    switch (type) {
        case weight_type::f32:
            return "f32";
        case weight_type::f16:
            return "f16";
        case weight_type::bf16:
            return "bf16";
        case weight_type::mxfp4:
            return "mxfp4";
    }
    return "unknown";
}

uint64_t bytes_of_columns(weight_type type, uint64_t columns) {
    switch (type) {
        case weight_type::f32:
            return columns * 4;
        case weight_type::f16:
        case weight_type::bf16:
            return columns * 2;
        case weight_type::mxfp4:
            assert(columns % 32 == 0);
            return columns / 2;
    }
    return 0;
}

uint64_t bytes_of(const matrix &of) {
    return of.rows * (bytes_of_columns(of.type, of.columns) + scale_bytes(of.type, of.columns));
}

expert_parts parts_of(uint32_t intermediate) {
    assert(intermediate > 0);
    const uint32_t least = (intermediate + parts_max - 1) / parts_max;
    return {intermediate, (least + part_unit - 1) / part_unit * part_unit};
}

uint32_t top_rows(uint32_t intermediate, double theta) {
    const expert_parts parts = parts_of(intermediate);
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

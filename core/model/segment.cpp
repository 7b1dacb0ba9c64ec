// segment.cpp - the places of a segment image's bytes, and copies of any range of them.
#include "core/model/segment.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace moorage::core {

namespace {

std::span<const float> part_of(std::span<const float> bias, uint32_t first, uint32_t count) {
    return bias.empty() ? bias : bias.subspan(first, count);
}

// Rows [first, first + count) in place.
matrix rows_of(const matrix &weights, uint32_t first, uint32_t count) {
    matrix part = weights;
    part.rows = count;
    assert(weights.scales == nullptr || first % format_of(weights.type).scale_rows == 0);
    part.data += first * weights.row_bytes;
    part.scales = scales_at(weights, first);
    return part;
}

matrix columns_of(const matrix &weights, uint32_t first, uint32_t count) {
    matrix part = weights;
    part.columns = count;
    part.data += bytes_of_columns(weights.type, first);
    if (part.scales != nullptr) part.scales += scale_bytes_of(weights.type, first);
    if (part.group_of != nullptr) part.group_of += first;
    return part;
}

}  // namespace

segment_image::segment_image(const mlp_weights &expert, uint32_t first, uint32_t count)
    : expert_(expert), first_(first), count_(count) {
    assert(uint64_t{first} + count <= expert.gate.rows);
    const mlp_weights part = in_place();
    size_t index = 0;
    for (const matrix *projection : {&part.gate, &part.up, &part.down}) {
        const uint64_t values = bytes_of_columns(projection->type, projection->columns);
        const uint64_t scales = scale_bytes_of(*projection),
                       scale_rows = scale_rows_of(*projection);
        stretches_[index++] = {projection->data, bytes_, values, projection->row_bytes,
                               projection->rows};
        bytes_ += values * projection->rows;
        stretches_[index++] = {projection->scales, bytes_, scales, projection->scale_row_bytes,
                               scale_rows};
        bytes_ += scales * scale_rows;
    }
}

// The part of the stretch within [begin, end). No bytes: there is none.
segment_image::source segment_image::source_of(uint32_t number, uint64_t begin,
                                               uint64_t end) const {
    const stretch &stretch = stretches_[number];
    const uint64_t low = std::max(begin, stretch.offset_bytes);
    const uint64_t high = std::min(end, stretch.offset_bytes + stretch.width_bytes * stretch.rows);
    if (low >= high) return {nullptr, 0, number};
    const auto source_offset =
        [&](uint64_t image_offset) {  // from a byte of the image to its offset from the
                                      // stretch's first byte
            const uint64_t within = image_offset - stretch.offset_bytes;
            return within / stretch.width_bytes * stretch.stride_bytes +
                   within % stretch.width_bytes;
        };
    return {stretch.source + source_offset(low), source_offset(high - 1) + 1 - source_offset(low),
            number};
}

void segment_image::copy(uint64_t begin, uint64_t end, std::byte *target) const {
    assert(begin <= end && end <= bytes_);
    for (uint32_t i = 0; i < stretches_.size(); ++i)
        if (const source range = source_of(i, begin, end); range.bytes != 0)
            copy_source(range, 0, {range.data, range.bytes}, target);
}

void segment_image::find_sources(uint64_t begin, uint64_t end, std::vector<source> &ranges) const {
    assert(begin <= end && end <= bytes_);
    for (uint32_t i = 0; i < stretches_.size(); ++i)
        if (const source range = source_of(i, begin, end); range.bytes != 0)
            ranges.push_back(range);
}

void segment_image::copy_source(const source &range, uint64_t offset,
                                std::span<const std::byte> bytes, std::byte *target) const {
    const stretch &stretch = stretches_[range.stretch];
    uint64_t position = static_cast<uint64_t>(range.data - stretch.source) + offset;
    while (!bytes.empty()) {
        const uint64_t row = position / stretch.stride_bytes,
                       column = position % stretch.stride_bytes;
        const bool inside = column < stretch.width_bytes;
        const bool whole = stretch.width_bytes == stretch.stride_bytes;  // then rows are contiguous
        const uint64_t run_bytes = whole    ? bytes.size()
                                   : inside ? stretch.width_bytes - column
                                            : stretch.stride_bytes - column;
        const uint64_t count = std::min<uint64_t>(run_bytes, bytes.size());
        const uint64_t image_offset = stretch.offset_bytes + row * stretch.width_bytes + column;
        if (inside) std::memcpy(target + image_offset, bytes.data(), count);
        position += count;
        bytes = bytes.subspan(count);
    }
}

mlp_weights segment_image::view(const std::byte *base) const {
    mlp_weights weights = in_place();
    size_t index = 0;
    for (matrix *projection : {&weights.gate, &weights.up, &weights.down}) {
        const stretch &values = stretches_[index++], &scales = stretches_[index++];
        projection->data = base + values.offset_bytes;
        projection->row_bytes = values.width_bytes;
        if (projection->scales == nullptr) continue;
        projection->scales = base + scales.offset_bytes;
        projection->scale_row_bytes = scales.width_bytes;
    }
    return weights;
}

mlp_weights segment_image::in_place() const {
    mlp_weights weights;
    weights.gate = rows_of(expert_.gate, first_, count_);
    weights.up = rows_of(expert_.up, first_, count_);
    weights.down = columns_of(expert_.down, first_, count_);
    weights.gate_bias = part_of(expert_.gate_bias, first_, count_);
    weights.up_bias = part_of(expert_.up_bias, first_, count_);
    weights.down_bias = expert_.down_bias;
    return weights;
}

}  // namespace moorage::core

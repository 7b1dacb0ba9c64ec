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
matrix rows_of(const matrix &of, uint32_t first, uint32_t count) {
    matrix part = of;
    part.rows = count;
    assert(of.scales == nullptr || first % format_of(of.type).scale_rows == 0);
    part.data += first * of.row_bytes;
    part.scales = scales_at(of, first);
    return part;
}

matrix columns_of(const matrix &of, uint32_t first, uint32_t count) {
    matrix part = of;
    part.columns = count;
    part.data += bytes_of_columns(of.type, first);
    if (part.scales != nullptr) part.scales += scale_bytes_of(of.type, first);
    if (part.group_of != nullptr) part.group_of += first;
    return part;
}

}  // namespace

segment_image::segment_image(const mlp_weights &expert, uint32_t first, uint32_t count)
    : expert_(expert), first_(first), count_(count) {
    assert(uint64_t{first} + count <= expert.gate.rows);
    const mlp_weights part = in_place();
    size_t at = 0;
    for (const matrix *one : {&part.gate, &part.up, &part.down}) {
        const uint64_t values = bytes_of_columns(one->type, one->columns);
        const uint64_t scales = scale_bytes_of(*one), scale_rows = scale_rows_of(*one);
        stretches_[at++] = {one->data, bytes_, values, one->row_bytes, one->rows};
        bytes_ += values * one->rows;
        stretches_[at++] = {one->scales, bytes_, scales, one->scale_row_bytes, scale_rows};
        bytes_ += scales * scale_rows;
    }
}

// The part of the stretch within [begin, end). No bytes: there is none.
segment_image::source segment_image::source_of(uint32_t number, uint64_t begin,
                                               uint64_t end) const {
    const stretch &from = stretches_[number];
    const uint64_t low = std::max(begin, from.offset_bytes);
    const uint64_t high = std::min(end, from.offset_bytes + from.width_bytes * from.rows);
    if (low >= high) return {nullptr, 0, number};
    const auto place = [&](uint64_t at) {  // from a byte of the image to its offset from the
                                           // stretch's first byte
        const uint64_t within = at - from.offset_bytes;
        return within / from.width_bytes * from.stride_bytes + within % from.width_bytes;
    };
    return {from.source + place(low), place(high - 1) + 1 - place(low), number};
}

void segment_image::copy(uint64_t begin, uint64_t end, std::byte *target) const {
    assert(begin <= end && end <= bytes_);
    for (uint32_t i = 0; i < stretches_.size(); ++i)
        if (const source from = source_of(i, begin, end); from.bytes != 0)
            take(from, 0, {from.data, from.bytes}, target);
}

void segment_image::sources(uint64_t begin, uint64_t end, std::vector<source> &out) const {
    assert(begin <= end && end <= bytes_);
    for (uint32_t i = 0; i < stretches_.size(); ++i)
        if (const source from = source_of(i, begin, end); from.bytes != 0) out.push_back(from);
}

void segment_image::take(const source &of, uint64_t offset, std::span<const std::byte> bytes,
                         std::byte *target) const {
    const stretch &from = stretches_[of.stretch];
    uint64_t place = static_cast<uint64_t>(of.data - from.source) + offset;
    while (!bytes.empty()) {
        const uint64_t row = place / from.stride_bytes, column = place % from.stride_bytes;
        const bool inside = column < from.width_bytes;
        const bool whole = from.width_bytes == from.stride_bytes;  // then rows are contiguous
        const uint64_t left = whole    ? bytes.size()
                              : inside ? from.width_bytes - column
                                       : from.stride_bytes - column;
        const uint64_t count = std::min<uint64_t>(left, bytes.size());
        const uint64_t at = from.offset_bytes + row * from.width_bytes + column;
        if (inside) std::memcpy(target + at, bytes.data(), count);
        place += count;
        bytes = bytes.subspan(count);
    }
}

mlp_weights segment_image::view(const std::byte *base) const {
    mlp_weights all = in_place();
    size_t at = 0;
    for (matrix *one : {&all.gate, &all.up, &all.down}) {
        const stretch &values = stretches_[at++], &scales = stretches_[at++];
        one->data = base + values.offset_bytes;
        one->row_bytes = values.width_bytes;
        if (one->scales == nullptr) continue;
        one->scales = base + scales.offset_bytes;
        one->scale_row_bytes = scales.width_bytes;
    }
    return all;
}

mlp_weights segment_image::in_place() const {
    mlp_weights all;
    all.gate = rows_of(expert_.gate, first_, count_);
    all.up = rows_of(expert_.up, first_, count_);
    all.down = columns_of(expert_.down, first_, count_);
    all.gate_bias = part_of(expert_.gate_bias, first_, count_);
    all.up_bias = part_of(expert_.up_bias, first_, count_);
    all.down_bias = expert_.down_bias;
    return all;
}

}  // namespace moorage::core

// segment.h - the image of an expert's segment: the contiguous bytes that a load transfers.
//
//   segment_image top(expert, 0, top_rows(intermediate, 0.5));
//   top.copy(0, top.bytes(), slot);            // any range, in any order
//   mlp_weights in_slot = top.view(slot);      // what a kernel reads
//
// An image holds the segment's rows of gate and up, then its columns of down. Scales that are
// stored separately follow the values of each matrix. Rows have no gaps. The images of a split
// expert together have the bytes of the whole. Biases are not included: they stay where the model
// keeps them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/weights.h"

namespace moorage::core {

class segment_image {
public:
    // Rows [first, first + count) of the intermediate dimension of `expert` (borrowed). Requires:
    // whole blocks of the weights' format within the expert.
    segment_image(const mlp_weights &expert, uint32_t first, uint32_t count);

    uint64_t bytes() const { return bytes_; }
    // Copies bytes [begin, end) of the image to target + begin.
    void copy(uint64_t begin, uint64_t end, std::byte *target) const;
    // The model's memory that a range of the image comes from, in stretches that may also contain
    // other bytes. Appends; `begin` and `end` as in copy().
    struct source {
        const std::byte *data;
        uint64_t bytes;
        uint32_t stretch;
    };
    void find_sources(uint64_t begin, uint64_t end, std::vector<source> &ranges) const;
    // Does copy() for one source, whose bytes from `offset` on are given in `bytes`.
    void copy_source(const source &range, uint64_t offset, std::span<const std::byte> bytes,
                     std::byte *target) const;
    // The segment's weights in an image at `base`: matrices of `count` rows (down: columns), biases
    // of these rows. If `base` is aligned to 64 bytes and a row of `hidden` values has a multiple
    // of 16 bytes, the matrices' values are aligned to 16 bytes.
    mlp_weights view(const std::byte *base) const;
    // As view(), but in the model's memory, without a copy.
    mlp_weights in_place() const;

private:
    // Part of the image: `rows` rows of `width_bytes` each, `stride_bytes` apart at `source`.
    struct stretch {
        const std::byte *source;
        uint64_t offset_bytes, width_bytes, stride_bytes, rows;
    };
    source source_of(uint32_t number, uint64_t begin, uint64_t end) const;
    const mlp_weights &expert_;
    uint32_t first_, count_;
    std::array<stretch, 6> stretches_{};  // values and scales of gate, up, down
    uint64_t bytes_ = 0;
};

}  // namespace moorage::core

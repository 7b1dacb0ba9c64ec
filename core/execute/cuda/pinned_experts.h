// pinned_experts.h - all routed experts in pinned host memory, as the images that loads move.
//
// A page's top and bottom segments each lie in one piece, since the files' own layout (rows of
// whole matrices) would make a load many small copies; so the mapped files cannot be registered in
// place. Memory comes in chunks, of which an image never crosses a border. Experts that share their
// weights (random models) share an image.
#pragma once

#include <cstdint>
#include <vector>

#include "core/execute/cuda/cuda_device.h"
#include "core/model/model.h"
#include "core/model/segment.h"

namespace moorage::core::cuda {

class pinned_experts {
public:
    // Rows [0, top_rows) and the rest of the intermediate dimension.
    pinned_experts(const model &of, uint32_t top_rows);

    // Of the pinned memory of all images; known before fill().
    uint64_t bytes() const { return bytes_; }
    uint64_t top_bytes() const { return segment_bytes_[0]; }
    uint64_t bottom_bytes() const { return segment_bytes_[1]; }
    // Allocates and packs, on `threads` threads. Borrows the device.
    status fill(cuda_device &device, uint32_t threads);

    // segment: 0 top, 1 bottom. Valid after fill().
    const std::byte *image(uint32_t page, uint32_t segment) const { return images_[segment][page]; }
    uint64_t image_bytes(uint32_t segment) const { return segment_bytes_[segment]; }
    const mlp_weights &expert(uint32_t page) const { return *experts_[page]; }
    // The weights of a segment where they lie in an image at `base`.
    mlp_weights view(uint32_t page, uint32_t segment, const std::byte *base) const;

private:
    struct place {
        uint32_t chunk;
        uint64_t offset_bytes;
    };
    segment_image segment_of(uint32_t page, uint32_t segment) const;

    uint32_t top_rows_, intermediate_;
    uint64_t segment_bytes_[2] = {};
    uint64_t bytes_ = 0;
    std::vector<const mlp_weights *> experts_;  // [pages]
    std::vector<uint32_t> shared_with_;         // [pages] the first page with the same weights
    std::vector<uint64_t> chunk_bytes_;
    std::vector<place> places_[2];
    std::vector<std::byte *> images_[2];
};

}  // namespace moorage::core::cuda

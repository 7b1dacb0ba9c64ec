// pinned_experts.h - routed experts in pinned host memory, as the images that loads copy. Holds all
// experts, or those for which an arena of host memory has rows, read from disk.
//
// A page's top and bottom segments each lie in one piece. The files' own layout (rows of whole
// matrices) would make a load many small copies, so the mapped files cannot be registered in place.
// Memory comes in chunks, and an expert never crosses the border of a chunk. Experts that share
// their weights (random models) share an image for each way in which their layers are split. In
// rows of an arena an image stays as it was read, so the division of a layer stays as it was at
// first.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/segment.h"
#include "core/store/arena.h"
#include "core/execute/gpu/gpu_executor.h"

namespace moorage::core::gpu {

class pinned_experts {
public:
    // Borrowed. `places` says how the experts of each layer are split. `rows` says where the
    // present experts are, each as a whole; null: all are here.
    pinned_experts(const model &model, const device_arenas &places, const arena *rows);

    // Bytes of pinned memory for all images. Known before fill().
    uint64_t bytes() const { return bytes_; }
    // Bytes of a row of the intermediate dimension, the largest of all layers.
    uint64_t row_bytes() const { return row_bytes_; }
    // Allocates by `take`, which returns null if it fails. If all experts are here, packs them on
    // several threads. False: it has failed.
    bool fill(std::function<std::byte *(uint64_t bytes)> take);
    // Packs again what the arena's new division cuts elsewhere. Requires: no image is being read.
    bool divide();

    // segment: 0 top, 1 bottom. Valid after fill(). Requires: the page has rows.
    std::byte *image(uint32_t page, uint32_t segment) const {
        return whole(page) + (segment == 0 ? 0 : image_bytes(page, 0));
    }
    uint64_t image_bytes(uint32_t page, uint32_t segment) const {
        return segment_of(page, segment).bytes();
    }
    uint32_t first_row(uint32_t page, uint32_t segment) const;
    uint32_t rows(uint32_t page, uint32_t segment) const;
    // The weights of a segment whose image is at `base`.
    mlp_weights view(uint32_t page, uint32_t segment, const std::byte *base) const;

private:
    struct place {
        uint32_t chunk;
        uint64_t offset_bytes;
    };
    // An image of the weights of `page`, packed for so many rows of the top segment. 0: not yet.
    struct packed_image {
        std::byte *data;
        uint32_t top_rows;
    };
    std::byte *whole(uint32_t page) const { return rows_ ? frame(page) : images_[page]; }
    std::byte *frame(uint32_t page) const;
    void plan_frames();
    segment_image segment_of(uint32_t page, uint32_t segment) const;
    void pack(std::vector<uint32_t> pages);

    uint32_t top_rows(uint32_t page) const {
        const arena &page_arena = places_.arena_of(page);
        return page_arena.top_rows(page_arena.layer_of(page));
    }

    const device_arenas places_;
    const arena *const rows_;
    const std::vector<const mlp_weights *> experts_;  // [pages]
    std::function<std::byte *(uint64_t)> take_;
    uint64_t frame_bytes_ = 0;  // bytes of an expert in rows, the largest of all layers
    std::vector<std::byte *> chunks_;
    uint64_t bytes_ = 0, row_bytes_ = 0;
    std::vector<uint32_t> shared_with_;  // [pages] the first page with the same weights
    std::vector<uint32_t> sharers_;      // [pages] for a first page: the number of pages with its
                                         // weights
    std::vector<uint64_t> chunk_bytes_;
    std::vector<place> image_places_;                // [pages] of a first page
    std::vector<std::vector<packed_image>> packed_;  // [pages] of a first page
    std::vector<std::byte *> images_;                // [pages]
};

}  // namespace moorage::core::gpu

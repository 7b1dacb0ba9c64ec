// expert_store.h - the experts that a node has in memory: its share of the plan, and experts on
// their way in or out.
//
// An expert is in place, mapped from the node's own model directory, or it is an image that came
// over the wire (core/model/segment.h). Bytes are those of the images either way, because a plan
// counts these. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/memory_block.h"
#include "core/model/model.h"
#include "core/model/segment.h"

namespace moorage::core {

class expert_store {
public:
    // Borrowed; nothing is here yet. bytes_max 0: no bound.
    explicit expert_store(const model &model, uint64_t bytes_max = 0);

    uint32_t pages() const { return static_cast<uint32_t>(slots_.size()); }
    bool has(uint32_t page) const { return slots_[page].weights != nullptr; }
    // Requires: has().
    const mlp_weights *weights(uint32_t page) const { return slots_[page].weights; }
    uint64_t image_bytes(uint32_t page) const { return image_of(page).bytes(); }
    // Appends a range of the image to `target`. Requires: has(), within the image.
    void copy(uint32_t page, uint64_t offset, uint64_t bytes, std::vector<std::byte> &target) const;

    // Takes the expert from the directory, without a copy. Requires: not here.
    void take_own(uint32_t page);
    // Whether there is room for it.
    bool fits(uint32_t page) const {
        return bytes_max_ == 0 || bytes_ + image_bytes(page) <= bytes_max_;
    }
    // Takes memory for the page's image. It counts from now on. Requires: not here.
    result<std::byte *> begin(uint32_t page);
    // The image is whole: the page is here.
    void end(uint32_t page);
    // The image did not come: frees the memory.
    void abandon(uint32_t page);
    // Requires: has(), and nobody computes with it.
    void forget(uint32_t page);

    uint64_t bytes() const { return bytes_; }
    uint64_t bytes_max() const { return bytes_max_; }
    uint32_t held() const { return held_; }

private:
    struct slot {
        const mlp_weights *weights = nullptr;  // null: not here
        memory_block image;                    // empty: in place
        mlp_weights in_image;
    };
    segment_image image_of(uint32_t page) const {
        return {*experts_[page], 0, model_.config().moe_intermediate};
    }

    const model &model_;
    const std::vector<const mlp_weights *> experts_;
    const uint64_t bytes_max_;
    std::vector<slot> slots_;  // [pages]
    uint64_t bytes_ = 0;
    uint32_t held_ = 0;
};

}  // namespace moorage::core

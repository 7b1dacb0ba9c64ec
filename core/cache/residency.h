// residency.h - the truth about fast memory: state byte of every page, slots and use of every pool.
//
// Owned by the host side of a run; policies see it through the moorage_residency view, in memory
// that they cannot write. Pages are layer * experts + expert. A page counts as used from the moment
// its load begins. [step]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/host/lent_memory.h"
#include "moorage/base.h"

namespace moorage::core {

// slots of each pool: "shared" is one pool; "per-layer" gives slots / layers each and the first
// (slots mod layers) one more. Whole experts.
std::vector<uint32_t> divide_slots(uint32_t slots, uint32_t layers, bool per_layer);

class residency {
public:
    residency(uint32_t layers, uint32_t experts, const std::vector<uint32_t> &pool_slots);
    residency(const residency &) = delete;

    const moorage_residency *view() const { return view_.lent(); }
    uint32_t layers() const { return layers_; }
    uint32_t experts() const { return experts_; }
    uint32_t page_count() const { return layers_ * experts_; }
    uint32_t pools() const { return static_cast<uint32_t>(slots_.size()); }
    uint32_t pool_of_layer(uint32_t layer) const { return slots_.size() == 1 ? 0 : layer; }
    uint32_t pool_of_page(uint32_t page) const { return pool_of_layer(page / experts_); }

    uint8_t state(uint32_t page) const { return state_[page]; }
    bool evictable(uint32_t page) const;
    uint32_t slots(uint32_t pool) const { return slots_[pool]; }
    uint32_t used(uint32_t pool) const { return used_[pool]; }
    uint32_t free(uint32_t pool) const {
        return slots_[pool] > used_[pool] ? slots_[pool] - used_[pool] : 0;
    }

    // Direct access for the stages that keep the truth.
    std::span<uint8_t> states() { return state_; }
    std::span<uint32_t> used_all() { return used_; }
    std::span<uint32_t> slots_all() { return slots_; }
    std::span<const uint32_t> slots_all() const { return slots_; }
    std::span<float> splits() { return split_; }

    // Everything absent, nothing pinned, slots as they are.
    void clear();
    // Everything resident. Requires: every pool will have a slot for each of its pages.
    void fill();

private:
    const uint32_t layers_, experts_;
    lent_vector<uint8_t> state_;
    lent_vector<uint32_t> slots_, used_;
    lent_vector<float> split_;
    lent_record<moorage_residency> view_;
};

}  // namespace moorage::core

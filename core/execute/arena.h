// arena.h - fast memory for experts as numbered slots: which segment of which page lies where.
//
// Two kinds of slots: top slots hold a top segment (a whole expert where experts are not split),
// bottom slots a bottom segment. Cached pages own a top slot; what is in the transfer buffer or
// staged for the step owns slots of either kind. All slots of a kind are equal, so moving from the
// buffer into the cache changes a label, not a place. Kept by the pipeline; executors read it.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "moorage/base.h"

namespace moorage::core {

class arena {
public:
    // `top_share`: of an expert that is its top segment, 1 where experts are not split.
    arena(uint32_t pages, uint32_t top_slots, uint32_t bottom_slots, double top_share = 1)
        : top_share_(top_share),
          places_{std::vector<uint32_t>(pages, MOORAGE_NONE),
                  std::vector<uint32_t>(pages, MOORAGE_NONE)},
          counts_{top_slots, bottom_slots} {
        for (uint32_t kind = 0; kind < 2; ++kind)
            for (uint32_t slot = counts_[kind]; slot-- > 0;) free_[kind].push_back(slot);
    }

    // Of an expert that the segments of the mask are.
    double share(uint8_t segments) const {
        return (segments & MOORAGE_TOP ? top_share_ : 0) +
               (segments & MOORAGE_BOTTOM ? 1 - top_share_ : 0);
    }
    bool split() const { return counts_[1] != 0; }
    uint32_t top_slots() const { return counts_[0]; }
    uint32_t bottom_slots() const { return counts_[1]; }
    // MOORAGE_TOP (also for a whole expert) or MOORAGE_BOTTOM; MOORAGE_NONE: not in the arena.
    uint32_t slot(uint32_t page, uint8_t segment) const { return places_[kind(segment)][page]; }
    // For kernels that read the whole map: [pages].
    const std::vector<uint32_t> &slots(uint8_t segment) const { return places_[kind(segment)]; }

    // Whether a slot is free for each segment of the mask that `page` does not hold yet.
    bool has_room(uint32_t page, uint8_t segments) const {
        for (uint8_t segment = MOORAGE_TOP; segment <= MOORAGE_BOTTOM; ++segment)
            if ((wanted(segments) & segment) && slot(page, segment) == MOORAGE_NONE &&
                free_[kind(segment)].empty())
                return false;
        return true;
    }
    // Gives `page` a slot for each segment of the mask that it does not hold. Requires: room.
    void take(uint32_t page, uint8_t segments) {
        for (uint8_t segment = MOORAGE_TOP; segment <= MOORAGE_BOTTOM; ++segment) {
            uint32_t &place = places_[kind(segment)][page];
            if (!(wanted(segments) & segment) || place != MOORAGE_NONE) continue;
            std::vector<uint32_t> &free = free_[kind(segment)];
            assert(!free.empty());
            place = free.back();
            free.pop_back();
        }
    }
    void release(uint32_t page, uint8_t segments) {
        for (uint8_t segment = MOORAGE_TOP; segment <= MOORAGE_BOTTOM; ++segment) {
            uint32_t &place = places_[kind(segment)][page];
            if (!(wanted(segments) & segment) || place == MOORAGE_NONE) continue;
            free_[kind(segment)].push_back(place);
            place = MOORAGE_NONE;
        }
    }

private:
    static uint32_t kind(uint8_t segment) { return segment == MOORAGE_BOTTOM ? 1 : 0; }
    // Without a split an expert is its top segment.
    uint8_t wanted(uint8_t segments) const {
        return split() || segments == 0 ? segments : uint8_t{MOORAGE_TOP};
    }

    double top_share_;
    std::vector<uint32_t> places_[2];  // [pages]
    std::vector<uint32_t> free_[2];
    uint32_t counts_[2];
};

}  // namespace moorage::core

// arena.h - fast memory for experts, counted in rows: which segment of which page lies where.
//
// A row is one of an expert's intermediate dimension; an executor knows its bytes. A *frame* has
// room for a whole expert. A layer whose experts are not split keeps them in frames, cached or not,
// so moving from the transfer buffer into the cache changes a label, not a place. A layer whose
// experts are split keeps the top segments of cached ones in *slots* of just that size, which all
// layers of the same split share; everything else of it (bottoms, and tops that are buffered or
// staged for the step) lies in the page's frame: the top at its beginning, the bottom behind it. A
// top that arrived in a frame and is to be cached has to be moved. Kept by the pipeline; executors
// read it.
#pragma once

#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "core/store/segments.h"

namespace moorage::core {

class arena {
public:
    // Room for `cached_experts` whole ones in the cache and `frames` beside it; unsplit at first.
    arena(uint32_t layers, uint32_t experts, uint32_t rows, uint32_t cached_experts,
          uint32_t frames);

    // Lays the cache out anew: rows of the top segment of every layer (`rows`: not split) and the
    // slots of each pool (1 or one a layer). Everything must have been released, unless
    // keeps_places() says that nothing moves. Requires: the slots fit.
    void divide(std::span<const uint32_t> top_rows, std::span<const uint32_t> pool_slots);
    bool keeps_places(std::span<const uint32_t> top_rows,
                      std::span<const uint32_t> pool_slots) const;

    uint32_t rows() const { return rows_; }         // of an expert
    uint64_t rows_total() const { return total_; }  // of the whole arena
    uint32_t top_rows(uint32_t layer) const { return top_rows_[layer]; }
    bool split(uint32_t layer) const { return top_rows_[layer] != rows_; }
    bool splits() const { return splits_; }  // any layer
    uint32_t layer_of(uint32_t page) const { return page / experts_; }
    // Of an expert of the layer that the segments of the mask are.
    double share(uint32_t layer, uint8_t segments) const {
        if (!split(layer)) return segments & first_segment ? 1 : 0;
        const double top = static_cast<double>(top_rows_[layer]) / rows_;
        return (segments & first_segment ? top : 0) + (segments & last_segment ? 1 - top : 0);
    }
    // What the cache keeps of the layer's experts.
    uint8_t cached_segments(uint32_t layer) const {
        return split(layer) ? first_segment : MOORAGE_WHOLE;
    }

    // Row at which the segment begins: first_segment (also for a whole expert) or last_segment.
    // MOORAGE_NEVER: not in the arena.
    uint64_t row_of(uint32_t page, uint8_t segment) const;

    // Whether there is room for the segments that `page` does not hold yet. `cached`: it owns a
    // place in the cache.
    bool has_room(uint32_t page, uint8_t segments, bool cached) const {
        if (splits_) return has_parts_room(page, segments, cached);
        return segments == 0 || frame_[page] != MOORAGE_NEVER || !frames_.empty();
    }
    // Requires: room.
    void take(uint32_t page, uint8_t segments, bool cached) {
        if (splits_)
            take_parts(page, segments, cached);
        else if (segments != 0)
            take_frame(page, first_segment);
    }
    void release(uint32_t page, uint8_t segments) {
        if (splits_)
            release_parts(page, segments);
        else if (segments != 0)
            leave_frame(page, first_segment);
    }
    bool in_frame(uint32_t page) const { return frame_[page] != MOORAGE_NEVER; }
    uint32_t free_frames() const { return static_cast<uint32_t>(frames_.size()); }

    // A cached page whose top segment lies in its frame: the slot it is to be moved to, taken now;
    // row_of() tells the old place until moved().
    bool must_move(uint32_t page) const {
        return splits_ && split(layer_of(page)) && (frame_use_[page] & first_segment) != 0;
    }
    uint64_t take_slot(uint32_t page);
    void moved(uint32_t page) { leave_frame(page, first_segment); }

private:
    // Slots of one size.
    struct slot_class {
        uint32_t rows, count;
        std::vector<uint64_t> free;
    };
    std::vector<slot_class> classes_of(std::span<const uint32_t> top_rows,
                                       std::span<const uint32_t> pool_slots) const;
    slot_class &class_of(uint32_t page) { return classes_[class_of_layer_[layer_of(page)]]; }
    const slot_class &class_of(uint32_t page) const {
        return classes_[class_of_layer_[layer_of(page)]];
    }
    bool in_slot(uint32_t page, uint8_t segment, bool cached) const {
        return cached && segment == first_segment && split(layer_of(page));
    }
    // Without a split an expert is its top segment.
    uint8_t wanted(uint32_t page, uint8_t segments) const {
        return split(layer_of(page)) || segments == 0 ? segments : first_segment;
    }
    bool has_parts_room(uint32_t page, uint8_t segments, bool cached) const;
    void take_parts(uint32_t page, uint8_t segments, bool cached);
    void release_parts(uint32_t page, uint8_t segments);
    void take_frame(uint32_t page, uint8_t segment) {
        if (frame_[page] == MOORAGE_NEVER) {
            assert(!frames_.empty());
            frame_[page] = frames_.back();
            frames_.pop_back();
        }
        frame_use_[page] |= segment;
    }
    void leave_frame(uint32_t page, uint8_t segments) {
        if (frame_[page] == MOORAGE_NEVER) return;
        frame_use_[page] &= static_cast<uint8_t>(~segments);
        if (frame_use_[page] != 0) return;
        frames_.push_back(frame_[page]);
        frame_[page] = MOORAGE_NEVER;
    }

    uint32_t experts_, rows_, frame_count_;
    uint64_t total_;
    bool splits_ = false;  // any layer; without one an expert has a frame or nothing
    std::vector<uint32_t> top_rows_, class_of_layer_;  // [layers]
    std::vector<slot_class> classes_;
    std::vector<uint64_t> frames_;        // free ones
    std::vector<uint64_t> frame_, slot_;  // [pages] first row, or MOORAGE_NEVER
    std::vector<uint8_t> frame_use_;      // [pages] segments that lie in the frame
};

}  // namespace moorage::core

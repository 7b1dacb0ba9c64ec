// arena.h - fast memory for experts, counted in rows: the place of each page's segments.
//
// A row is one row of an expert's intermediate dimension; the executor knows its bytes. A *frame*
// holds a whole expert. A layer whose experts are not split keeps them in frames, cached or not. So
// moving from the transfer buffer into the cache changes a label, not a place.
//
// A layer whose experts are split keeps the top segments of cached experts in *slots* of exactly
// that size. All layers with the same split share them. Everything else of the layer lies in the
// page's frame: bottom segments, and tops that are buffered or staged for the step. The top is at
// the frame's beginning, the bottom behind it. A top that arrived in a frame must be moved to be
// cached.
//
// The pipeline keeps the arena; executors read it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/invariant.h"
#include "core/store/segments.h"

namespace moorage::core {

class arena {
public:
    // Room for `cached_experts` whole experts in the cache and `frames` beside it. Not split at
    // first.
    arena(uint32_t layers, uint32_t experts, uint32_t rows, uint32_t cached_experts,
          uint32_t frames);

    // Divides the cache anew: the top segment's rows in every layer (`rows`: not split) and the
    // slots of each pool (one pool, or one per layer). All pages must have been released, unless
    // keeps_places() says that nothing moves. Requires: the slots fit.
    void divide(std::span<const uint32_t> top_rows, std::span<const uint32_t> pool_slots);
    bool keeps_places(std::span<const uint32_t> top_rows,
                      std::span<const uint32_t> pool_slots) const;

    uint32_t rows() const { return rows_; }              // per expert
    uint64_t rows_total() const { return total_rows_; }  // of the whole arena
    uint32_t top_rows(uint32_t layer) const { return top_rows_[layer]; }
    bool is_split(uint32_t layer) const { return top_rows_[layer] != rows_; }
    bool any_split() const { return any_split_; }  // true if any layer is split
    uint32_t layer_of(uint32_t page) const { return page / experts_; }
    // The share of an expert of the layer that the segments of the mask make up.
    double share(uint32_t layer, uint8_t segments) const {
        if (!is_split(layer)) return segments & first_segment ? 1 : 0;
        const double top = static_cast<double>(top_rows_[layer]) / rows_;
        return (segments & first_segment ? top : 0) + (segments & last_segment ? 1 - top : 0);
    }
    // The segments of the layer's experts that the cache keeps.
    uint8_t cached_segments(uint32_t layer) const {
        return is_split(layer) ? first_segment : MOORAGE_WHOLE;
    }

    // The row at which the segment begins: first_segment (also for a whole expert) or last_segment.
    // MOORAGE_NEVER: not in the arena.
    uint64_t row_of(uint32_t page, uint8_t segment) const;

    // Is there room for the segments that `page` does not have yet? `cached`: it has a place in the
    // cache.
    bool has_room(uint32_t page, uint8_t segments, bool cached) const {
        if (any_split_) return has_parts_room(page, segments, cached);
        return segments == 0 || frame_row_[page] != MOORAGE_NEVER || !free_frames_.empty();
    }
    // Requires: has_room().
    void take(uint32_t page, uint8_t segments, bool cached) {
        if (any_split_)
            take_parts(page, segments, cached);
        else if (segments != 0)
            take_frame(page, first_segment);
    }
    void release(uint32_t page, uint8_t segments) {
        if (any_split_)
            release_parts(page, segments);
        else if (segments != 0)
            leave_frame(page, first_segment);
    }
    bool in_frame(uint32_t page) const { return frame_row_[page] != MOORAGE_NEVER; }
    uint32_t free_frames() const { return static_cast<uint32_t>(free_frames_.size()); }

    // A cached page whose top segment lies in its frame: take_slot() reserves the slot to move it
    // to. row_of() gives the old place until moved().
    bool must_move(uint32_t page) const {
        return any_split_ && is_split(layer_of(page)) && (frame_use_[page] & first_segment) != 0;
    }
    uint64_t take_slot(uint32_t page);
    void moved(uint32_t page) { leave_frame(page, first_segment); }

private:
    // Slots of equal size.
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
        return cached && segment == first_segment && is_split(layer_of(page));
    }
    // Without a split, an expert consists of its top segment.
    uint8_t needed_segments(uint32_t page, uint8_t segments) const {
        return is_split(layer_of(page)) || segments == 0 ? segments : first_segment;
    }
    bool has_parts_room(uint32_t page, uint8_t segments, bool cached) const;
    void take_parts(uint32_t page, uint8_t segments, bool cached);
    void release_parts(uint32_t page, uint8_t segments);
    void take_frame(uint32_t page, uint8_t segment) {
        if (frame_row_[page] == MOORAGE_NEVER) {
            MOORAGE_INVARIANT(!free_frames_.empty());
            frame_row_[page] = free_frames_.back();
            free_frames_.pop_back();
        }
        frame_use_[page] |= segment;
    }
    void leave_frame(uint32_t page, uint8_t segments) {
        if (frame_row_[page] == MOORAGE_NEVER) return;
        frame_use_[page] &= static_cast<uint8_t>(~segments);
        if (frame_use_[page] != 0) return;
        free_frames_.push_back(frame_row_[page]);
        frame_row_[page] = MOORAGE_NEVER;
    }

    uint32_t experts_, rows_, frame_count_;
    uint64_t total_rows_;
    bool any_split_ = false;  // any layer is split; otherwise an expert has a frame or nothing
    std::vector<uint32_t> top_rows_, class_of_layer_;  // [layers]
    std::vector<slot_class> classes_;
    std::vector<uint64_t> free_frames_;           // free frames
    std::vector<uint64_t> frame_row_, slot_row_;  // [pages] first row, or MOORAGE_NEVER
    std::vector<uint8_t> frame_use_;              // [pages] segments in the frame
};

}  // namespace moorage::core

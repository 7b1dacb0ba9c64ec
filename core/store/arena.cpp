// arena.cpp - assigns frames and slots.
#include "core/store/arena.h"

#include <algorithm>

#include "core/base/invariant.h"

namespace moorage::core {

arena::arena(uint32_t layers, uint32_t experts, uint32_t rows, uint32_t cached_experts,
             uint32_t frames)
    : experts_(experts),
      rows_(rows),
      frame_count_(frames),
      total_rows_(uint64_t{rows} * (uint64_t{cached_experts} + frames)),
      frame_row_(size_t{layers} * experts, MOORAGE_NEVER),
      slot_row_(size_t{layers} * experts, MOORAGE_NEVER),
      frame_use_(size_t{layers} * experts, 0) {
    const std::vector<uint32_t> unsplit(layers, rows);
    divide(unsplit, {});
}

std::vector<arena::slot_class> arena::classes_of(std::span<const uint32_t> top_rows,
                                                 std::span<const uint32_t> pool_slots) const {
    std::vector<slot_class> classes;
    for (size_t layer = 0; layer < top_rows.size(); ++layer) {
        const uint32_t rows = top_rows[layer];
        MOORAGE_INVARIANT(rows > 0 && rows <= rows_);
        if (rows == rows_) continue;
        auto found = std::ranges::find(classes, rows, &slot_class::rows);
        if (found == classes.end()) found = classes.insert(found, {rows, 0, {}});
        // All layers of a shared pool have the same split.
        if (pool_slots.size() == 1)
            found->count = pool_slots[0];
        else if (layer < pool_slots.size())
            found->count += pool_slots[layer];
    }
    return classes;
}

bool arena::keeps_places(std::span<const uint32_t> top_rows,
                         std::span<const uint32_t> pool_slots) const {
    if (!std::ranges::equal(top_rows, top_rows_)) return false;
    const std::vector<slot_class> wanted = classes_of(top_rows, pool_slots);
    return std::ranges::equal(wanted, classes_, [](const slot_class &a, const slot_class &b) {
        return a.rows == b.rows && a.count == b.count;
    });
}

void arena::divide(std::span<const uint32_t> top_rows, std::span<const uint32_t> pool_slots) {
    if (!top_rows_.empty() && keeps_places(top_rows, pool_slots)) return;
    classes_ = classes_of(top_rows, pool_slots);
    top_rows_.assign(top_rows.begin(), top_rows.end());
    any_split_ = !classes_.empty();
    class_of_layer_.assign(top_rows.size(), MOORAGE_NONE);
    uint64_t row = 0;
    for (slot_class &slots : classes_)
        for (uint32_t i = 0; i < slots.count; ++i, row += slots.rows) slots.free.push_back(row);
    for (slot_class &slots : classes_) std::ranges::reverse(slots.free);
    for (size_t layer = 0; layer < top_rows.size(); ++layer)
        for (uint32_t i = 0; i < classes_.size(); ++i)
            if (classes_[i].rows == top_rows[layer]) class_of_layer_[layer] = i;
    // The rest are frames: those beside the cache, and one for each slot of unsplit layers.
    MOORAGE_INVARIANT(row + uint64_t{frame_count_} * rows_ <= total_rows_);
    free_frames_.clear();
    for (; row + rows_ <= total_rows_; row += rows_) free_frames_.push_back(row);
    const bool mixed = std::ranges::find(class_of_layer_, MOORAGE_NONE) != class_of_layer_.end();
    if (!mixed) free_frames_.resize(frame_count_);
    std::ranges::reverse(free_frames_);
}

uint64_t arena::row_of(uint32_t page, uint8_t segment) const {
    if (segment == last_segment) {
        if (!(frame_use_[page] & last_segment)) return MOORAGE_NEVER;
        return frame_row_[page] + top_rows_[layer_of(page)];
    }
    return frame_use_[page] & first_segment ? frame_row_[page] : slot_row_[page];
}

bool arena::has_parts_room(uint32_t page, uint8_t segments, bool cached) const {
    for (const uint8_t segment : {first_segment, last_segment}) {
        if (!(needed_segments(page, segments) & segment) || row_of(page, segment) != MOORAGE_NEVER)
            continue;
        if (in_slot(page, segment, cached)
                ? class_of(page).free.empty()
                : frame_row_[page] == MOORAGE_NEVER && free_frames_.empty())
            return false;
    }
    return true;
}

void arena::take_parts(uint32_t page, uint8_t segments, bool cached) {
    for (const uint8_t segment : {first_segment, last_segment}) {
        if (!(needed_segments(page, segments) & segment) || row_of(page, segment) != MOORAGE_NEVER)
            continue;
        if (in_slot(page, segment, cached)) {
            take_slot(page);
            continue;
        }
        take_frame(page, segment);
    }
}

uint64_t arena::take_slot(uint32_t page) {
    if (slot_row_[page] != MOORAGE_NEVER) return slot_row_[page];
    std::vector<uint64_t> &free = class_of(page).free;
    MOORAGE_INVARIANT(!free.empty());
    slot_row_[page] = free.back();
    free.pop_back();
    return slot_row_[page];
}

void arena::release_parts(uint32_t page, uint8_t segments) {
    const uint8_t released = needed_segments(page, segments);
    if ((released & first_segment) && slot_row_[page] != MOORAGE_NEVER) {
        class_of(page).free.push_back(slot_row_[page]);
        slot_row_[page] = MOORAGE_NEVER;
    }
    if (released != 0) leave_frame(page, released);
}

}  // namespace moorage::core

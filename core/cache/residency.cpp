// residency.cpp - keeps the state bytes and the counts that the view shows.
#include "core/cache/residency.h"

#include <algorithm>

namespace moorage::core {

std::vector<uint32_t> divide_slots(uint32_t slots, uint32_t layers, bool per_layer) {
    if (!per_layer) return {slots};
    std::vector<uint32_t> each(layers, slots / layers);
    for (uint32_t layer = 0; layer < slots % layers; ++layer) ++each[layer];
    return each;
}

residency::residency(uint32_t layers, uint32_t experts, const std::vector<uint32_t> &pool_slots)
    : layers_(layers),
      experts_(experts),
      state_(size_t{layers} * experts, 0),
      slots_(pool_slots.begin(), pool_slots.end()),
      used_(slots_.size(), 0),
      split_(layers, 1.0f) {
    *view_ = {sizeof(moorage_residency),
              0,
              layers,
              experts,
              pools(),
              0,
              lent(state_),
              lent(slots_),
              lent(used_),
              lent(split_)};
}

bool residency::evictable(uint32_t page) const {
    const uint8_t state = state_[page];
    return (state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) != 0 &&
           (state & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED)) == 0;
}

void residency::clear() {
    std::fill(state_.begin(), state_.end(), uint8_t{0});
    std::fill(used_.begin(), used_.end(), 0u);
}

void residency::fill() {
    std::fill(state_.begin(), state_.end(), uint8_t{MOORAGE_WHOLE});
    std::fill(used_.begin(), used_.end(), page_count() / pools());
}

}  // namespace moorage::core

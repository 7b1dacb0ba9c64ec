// residency.cpp - keeps the state bytes and the counts that the view shows.
#include "core/cache/residency.h"

#include <algorithm>
#include <utility>

namespace moorage::core {

std::vector<uint32_t> divide_slots(uint32_t slots, uint32_t layers, bool per_layer) {
    if (!per_layer) return {slots};
    std::vector<uint32_t> each(layers, slots / layers);
    for (uint32_t layer = 0; layer < slots % layers; ++layer) ++each[layer];
    return each;
}

residency::residency(uint32_t layers, uint32_t experts, std::vector<uint32_t> pool_slots)
    : state_(size_t{layers} * experts, 0),
      slots_(std::move(pool_slots)),
      used_(slots_.size(), 0),
      split_(layers, 1.0f) {
    view_ = {sizeof(view_),
             0,
             layers,
             experts,
             static_cast<uint32_t>(slots_.size()),
             0,
             state_.data(),
             slots_.data(),
             used_.data(),
             split_.data()};
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

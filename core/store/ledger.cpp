// ledger.cpp - functions of the ledger that concern more than one entry.
#include "core/store/ledger.h"

#include <algorithm>
#include <utility>

#include "core/base/invariant.h"

namespace moorage::core {

std::vector<uint32_t> divide_slots(uint32_t slots, uint32_t layers, bool per_layer) {
    if (!per_layer) return {slots};
    std::vector<uint32_t> pool_slots(layers, slots / layers);
    for (uint32_t layer = 0; layer < slots % layers; ++layer) ++pool_slots[layer];
    return pool_slots;
}

ledger::ledger(uint32_t layers, uint32_t experts, const std::vector<uint32_t> &pool_slots,
               std::unique_ptr<arena> rows)
    : layers_(layers),
      experts_(experts),
      rows_(std::move(rows)),
      any_split_(rows_ && rows_->any_split()),
      state_(size_t{layers} * experts, 0),
      slots_(pool_slots.begin(), pool_slots.end()),
      used_(slots_.size(), 0),
      split_shares_(layers, 1.0f) {
    *view_ = {sizeof(moorage_residency),
              0,
              layers,
              experts,
              pools(),
              0,
              lent(state_),
              lent(slots_),
              lent(used_),
              lent(split_shares_),
              nullptr,
              nullptr};
}

void ledger::show_in(ledger &combined, std::span<const uint8_t> spread, uint32_t device) {
    MOORAGE_INVARIANT(combined.pools() == pools() && combined.page_count() == page_count());
    combined_ledger_ = &combined;
    spread_ = spread;
    device_ = view_->store = device;
    for (uint32_t pool = 0; pool < pools(); ++pool) {
        combined.slots_[pool] += slots_[pool];
        combined.used_[pool] += used_[pool];
    }
    std::copy(split_shares_.begin(), split_shares_.end(), combined.split_shares_.begin());
}

void ledger::set_slots(std::span<const uint32_t> slots) {
    MOORAGE_INVARIANT(slots.size() == slots_.size());
    if (combined_ledger_ != nullptr)
        for (uint32_t pool = 0; pool < pools(); ++pool)
            combined_ledger_->slots_[pool] += slots[pool] - slots_[pool];
    std::copy(slots.begin(), slots.end(), slots_.begin());
}

void ledger::set_split(uint32_t layer, float share) {
    split_shares_[layer] = share;
    if (combined_ledger_ != nullptr) combined_ledger_->split_shares_[layer] = share;
}

bool ledger::is_consistent() const {
    std::vector<uint32_t> kept(pools(), 0);
    for (uint32_t page = 0; page < page_count(); ++page) {
        const uint32_t state = state_[page], passing = state >> MOORAGE_STATE_BUFFERED_SHIFT;
        const uint32_t known = state | state >> MOORAGE_STATE_IN_FLIGHT_SHIFT;
        kept[pool_of_page(page)] += (known & ~passing & slot_segments(page)) != 0;
        if ((known & MOORAGE_WHOLE) == 0 && version_of(state) != 0) return false;
    }
    return std::equal(kept.begin(), kept.end(), used_.begin());
}

void ledger::clear() {
    std::fill(state_.begin(), state_.end(), 0u);
    std::fill(used_.begin(), used_.end(), 0u);
}

void ledger::fill() {
    std::fill(state_.begin(), state_.end(), MOORAGE_WHOLE);
    std::fill(used_.begin(), used_.end(), page_count() / pools());
}

}  // namespace moorage::core

// memories.cpp - assigns pages to devices.
#include "core/store/memories.h"

#include <cassert>
#include <numeric>

namespace moorage::core {

std::vector<uint8_t> spread_pages(uint32_t layers, uint32_t experts,
                                  std::span<const uint32_t> slots, bool whole_layers) {
    const uint64_t all = std::accumulate(slots.begin(), slots.end(), uint64_t{0});
    const uint32_t each = whole_layers ? experts : 1;
    std::vector<uint64_t> dealt(slots.size(), 0);
    std::vector<uint8_t> spread;
    spread.reserve(size_t{layers} * experts);
    // The next page goes to the device that lacks most of its share so far, or to the first of
    // them. No device gets more than its share rounded up, so pages that fit in total fit on each
    // device.
    for (uint64_t count = 1; spread.size() < size_t{layers} * experts; ++count) {
        size_t best = 0;
        int64_t most = INT64_MIN;
        for (size_t device = 0; device < slots.size(); ++device) {
            const int64_t missing = static_cast<int64_t>(slots[device] * count) -
                                    static_cast<int64_t>(dealt[device] * all);
            if (missing > most) most = missing, best = device;
        }
        ++dealt[best];
        spread.insert(spread.end(), each, static_cast<uint8_t>(best));
    }
    return spread;
}

memories::memories(std::vector<ledger *> each, ledger *all, std::vector<uint8_t> spread)
    : only_(each.size() == 1 ? each.front() : nullptr),
      all_(each.size() == 1 ? each.front() : all),
      each_(std::move(each)),
      spread_(std::make_shared<const std::vector<uint8_t>>(std::move(spread))) {
    if (only_ != nullptr) return;
    of_page_ = spread_->data();
    assert(spread_->size() == all_->page_count());
    for (uint32_t device = 0; device < devices(); ++device)
        each_[device]->show_in(*all_, *spread_, device);
}

bool memories::add_up() const {
    for (const ledger *const one : each_)
        if (!one->adds_up()) return false;
    for (uint32_t page = 0; page < all_->page_count(); ++page)
        if (all_->state(page) != of(page).state(page)) return false;
    for (uint32_t pool = 0; pool < all_->pools(); ++pool) {
        uint32_t slots = 0, used = 0;
        for (const ledger *const one : each_) slots += one->slots(pool), used += one->used(pool);
        if (all_->slots(pool) != slots || all_->used(pool) != used) return false;
    }
    return true;
}

}  // namespace moorage::core

// memories.cpp - assigns pages to devices.
#include "core/store/memories.h"

#include <numeric>

#include "core/base/invariant.h"

namespace moorage::core {

std::vector<uint8_t> spread_pages(uint32_t layers, uint32_t experts,
                                  std::span<const uint32_t> slots, bool whole_layers) {
    const uint64_t total_slots = std::accumulate(slots.begin(), slots.end(), uint64_t{0});
    const uint32_t unit_pages = whole_layers ? experts : 1;
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
                                    static_cast<int64_t>(dealt[device] * total_slots);
            if (missing > most) most = missing, best = device;
        }
        ++dealt[best];
        spread.insert(spread.end(), unit_pages, static_cast<uint8_t>(best));
    }
    return spread;
}

memories::memories(std::vector<ledger *> ledgers, ledger *combined, std::vector<uint8_t> spread)
    : single_ledger_(ledgers.size() == 1 ? ledgers.front() : nullptr),
      combined_ledger_(ledgers.size() == 1 ? ledgers.front() : combined),
      ledgers_(std::move(ledgers)),
      spread_(std::make_shared<const std::vector<uint8_t>>(std::move(spread))) {
    if (single_ledger_ != nullptr) return;
    device_of_page_ = spread_->data();
    MOORAGE_INVARIANT(spread_->size() == combined_ledger_->page_count());
    for (uint32_t device = 0; device < devices(); ++device)
        ledgers_[device]->show_in(*combined_ledger_, *spread_, device);
}

bool memories::is_consistent() const {
    for (const ledger *const device_ledger : ledgers_)
        if (!device_ledger->is_consistent()) return false;
    for (uint32_t page = 0; page < combined_ledger_->page_count(); ++page)
        if (combined_ledger_->state(page) != ledger_of_page(page).state(page)) return false;
    for (uint32_t pool = 0; pool < combined_ledger_->pools(); ++pool) {
        uint32_t slots = 0, used = 0;
        for (const ledger *const device_ledger : ledgers_)
            slots += device_ledger->slots(pool), used += device_ledger->used_slots(pool);
        if (combined_ledger_->slots(pool) != slots || combined_ledger_->used_slots(pool) != used)
            return false;
    }
    return true;
}

}  // namespace moorage::core

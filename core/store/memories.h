// memories.h - the fast memories of several devices: a ledger for each, and one that shows them
// all.
//
// Every page belongs to one device permanently and is never in another device's memory. So each
// device's cache policy sees a view with only its own pages, as if there were no other device.
// Policies that decide for all devices see the view of all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/store/ledger.h"

namespace moorage::core {

// Assigns pages to devices in proportion to the devices' slots. In any run of consecutive pages
// each device has its share, to within one or two pages. `whole_layers`: assigns layers, not pages.
std::vector<uint8_t> spread_pages(uint32_t layers, uint32_t experts,
                                  std::span<const uint32_t> slots, bool whole_layers);

// Borrows the ledgers. May be copied before the run.
class memories {
public:
    // A single device: its ledger shows everything.
    memories(ledger *single) : single_ledger_(single), combined_ledger_(single), ledgers_{single} {}
    // `spread`: the device of each page. Each ledger shows its pages in `combined`
    // (ledger::show_in).
    memories(std::vector<ledger *> ledgers, ledger *combined, std::vector<uint8_t> spread);

    uint32_t devices() const { return static_cast<uint32_t>(ledgers_.size()); }
    uint32_t device_of(uint32_t page) const { return single_ledger_ ? 0 : device_of_page_[page]; }
    // The device of each page; empty for a single device.
    std::span<const uint8_t> spread() const {
        return single_ledger_ ? std::span<const uint8_t>() : std::span<const uint8_t>(*spread_);
    }
    std::vector<const arena *> arenas() const {
        std::vector<const arena *> arenas;
        for (const ledger *device_ledger : ledgers_) arenas.push_back(&device_ledger->rows());
        return arenas;
    }
    ledger &ledger_of_device(uint32_t device) const { return *ledgers_[device]; }
    ledger &ledger_of_page(uint32_t page) const {
        return single_ledger_ ? *single_ledger_ : *ledgers_[device_of_page_[page]];
    }
    // The ledger of a single device; null: there are several. Saves loops from asking each time.
    ledger *single_ledger() const { return single_ledger_; }
    // The sum of all devices. Only its view, counts and states are meaningful.
    const ledger &combined_ledger() const { return *combined_ledger_; }
    // Does ledger::is_consistent() hold for each, and does the view of all agree with them?
    bool is_consistent() const;

private:
    ledger *single_ledger_, *combined_ledger_;
    std::vector<ledger *> ledgers_;
    std::shared_ptr<const std::vector<uint8_t>> spread_;
    const uint8_t *device_of_page_ = nullptr;  // spread_'s data
};

}  // namespace moorage::core

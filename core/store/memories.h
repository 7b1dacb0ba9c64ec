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
    memories(ledger *only) : only_(only), all_(only), each_{only} {}
    // `spread`: the device of each page. Each ledger shows its pages in `all` (ledger::show_in).
    memories(std::vector<ledger *> each, ledger *all, std::vector<uint8_t> spread);

    uint32_t devices() const { return static_cast<uint32_t>(each_.size()); }
    uint32_t device_of(uint32_t page) const { return only_ ? 0 : of_page_[page]; }
    // The device of each page; empty for a single device.
    std::span<const uint8_t> spread() const {
        return only_ ? std::span<const uint8_t>() : std::span<const uint8_t>(*spread_);
    }
    std::vector<const arena *> arenas() const {
        std::vector<const arena *> out;
        for (const ledger *one : each_) out.push_back(&one->rows());
        return out;
    }
    ledger &at(uint32_t device) const { return *each_[device]; }
    ledger &of(uint32_t page) const { return only_ ? *only_ : *each_[of_page_[page]]; }
    // The ledger of a single device; null: there are several. Saves loops from asking each time.
    ledger *only() const { return only_; }
    // The sum of all devices. Only its view, counts and states are meaningful.
    const ledger &all() const { return *all_; }
    // Does ledger::adds_up() hold for each, and does the view of all agree with them?
    bool add_up() const;

private:
    ledger *only_, *all_;
    std::vector<ledger *> each_;
    std::shared_ptr<const std::vector<uint8_t>> spread_;
    const uint8_t *of_page_ = nullptr;  // spread_'s data
};

}  // namespace moorage::core

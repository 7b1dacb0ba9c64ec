// memories.h - the fast memories of a machine with several devices: a ledger for each, and one that
// shows what all of them do.
//
// Every page belongs to one device, for good: it lies in no other's memory. So each device's cache
// policy sees a view in which only its own pages ever appear, as if there were no other; whoever
// decides for all of them sees the view of all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/store/ledger.h"

namespace moorage::core {

// Which device each page belongs to, by the slots that the devices have: of any run of pages each
// has its part, to within one or two. `whole_layers`: layers are dealt out in place of pages.
std::vector<uint8_t> spread_pages(uint32_t layers, uint32_t experts,
                                  std::span<const uint32_t> slots, bool whole_layers);

// Borrows the ledgers; copied freely before the run.
class memories {
public:
    // One device: its ledger shows all there is.
    memories(ledger *only) : only_(only), all_(only), each_{only} {}
    // `spread`: the device of each page. Each shows its own in `all` (ledger::show_in).
    memories(std::vector<ledger *> each, ledger *all, std::vector<uint8_t> spread);

    uint32_t devices() const { return static_cast<uint32_t>(each_.size()); }
    uint32_t device_of(uint32_t page) const { return only_ ? 0 : of_page_[page]; }
    // The device of each page; of one device: empty.
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
    // Of one device: its ledger; null: there are several. For loops that need not ask each time.
    ledger *only() const { return only_; }
    // What the devices have together; only its view, counts and states mean anything.
    const ledger &all() const { return *all_; }
    // ledger::adds_up() of each, and what shows all of them shows the same.
    bool add_up() const;

private:
    ledger *only_, *all_;
    std::vector<ledger *> each_;
    std::shared_ptr<const std::vector<uint8_t>> spread_;
    const uint8_t *of_page_ = nullptr;  // the same
};

}  // namespace moorage::core

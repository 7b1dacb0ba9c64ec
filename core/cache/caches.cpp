// caches.cpp - one device after the other.
#include "core/cache/caches.h"

#include <algorithm>

#include "core/base/invariant.h"

namespace moorage::core {

caches::caches(std::span<instance *const> policies, const memories &memories, fault_log &faults)
    : memories_(memories) {
    MOORAGE_INVARIANT(policies.size() == memories.devices());
    stages_.reserve(policies.size());
    for (uint32_t device = 0; device < policies.size(); ++device)
        stages_.emplace_back(*policies[device], memories.ledger_of_device(device), faults);
    device_pages_.reserve(memories.combined_ledger().experts());
    device_placements_.resize(memories.combined_ledger().experts());
}

bool caches::load_on_each(std::span<const uint32_t> pages, int32_t cause, bool at_once,
                          std::span<placement_in_cache> placements) {
    for (uint32_t device = 0; device < stages_.size(); ++device) {
        device_pages_.clear();
        for (const uint32_t page : pages)
            if (memories_.device_of(page) == device) device_pages_.push_back(page);
        const std::span device_placements(device_placements_.data(), device_pages_.size());
        if (!stages_[device].load(device_pages_, cause, at_once, device_placements)) return false;
        auto next_placement = device_placements.begin();
        for (size_t i = 0; i < pages.size(); ++i)
            if (memories_.device_of(pages[i]) == device) placements[i] = *next_placement++;
    }
    return true;
}

uint64_t caches::refused() const {
    uint64_t total = 0;
    for (const cache_stage &stage : stages_) total += stage.refused();
    return total;
}

}  // namespace moorage::core

// caches.cpp - one device after the other.
#include "core/cache/caches.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

caches::caches(std::span<instance *const> policies, const memories &truth, fault_log &faults)
    : truth_(truth) {
    assert(policies.size() == truth.devices());
    each_.reserve(policies.size());
    for (uint32_t device = 0; device < policies.size(); ++device)
        each_.emplace_back(*policies[device], truth.at(device), faults);
    pages_.reserve(truth.all().experts());
    placed_.resize(truth.all().experts());
}

bool caches::load_on_each(std::span<const uint32_t> pages, int32_t cause, bool at_once,
                          std::span<placement_in_cache> out) {
    for (uint32_t device = 0; device < each_.size(); ++device) {
        pages_.clear();
        for (const uint32_t page : pages)
            if (truth_.device_of(page) == device) pages_.push_back(page);
        const std::span placed(placed_.data(), pages_.size());
        if (!each_[device].load(pages_, cause, at_once, placed)) return false;
        auto next = placed.begin();
        for (size_t i = 0; i < pages.size(); ++i)
            if (truth_.device_of(pages[i]) == device) out[i] = *next++;
    }
    return true;
}

uint64_t caches::refused() const {
    uint64_t all = 0;
    for (const cache_stage &one : each_) all += one.refused();
    return all;
}

}  // namespace moorage::core

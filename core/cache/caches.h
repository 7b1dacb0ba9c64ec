// caches.h - the cache stages of all devices. Each device has its own instance of the policy, and a
// page goes to the stage of its device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cache/cache_stage.h"
#include "core/store/memories.h"

namespace moorage::core {

class caches {
public:
    // One policy for each device. All borrowed.
    caches(std::span<instance *const> policies, const memories &memories, fault_log &faults);

    cache_stage &of_device(uint32_t device) { return stages_[device]; }
    // As in cache_stage. `pages`: of one layer, of any devices.
    bool load(std::span<const uint32_t> pages, int32_t cause, bool at_once,
              std::span<placement_in_cache> placements) {
        return stages_.size() == 1 ? stages_.front().load(pages, cause, at_once, placements)
                                   : load_on_each(pages, cause, at_once, placements);
    }
    // Whether the policy may give up pages.
    bool gives_up() const { return stages_.front().gives_up(); }
    bool give_up(uint32_t layer, std::vector<uint32_t> &evicted) {
        for (cache_stage &stage : stages_)
            if (!stage.give_up(layer, evicted)) return false;
        return true;
    }
    // A better version of the page than the cached one is to come. Requires: it may be evicted.
    void give_way(uint32_t page) { stages_[memories_.device_of(page)].give_way(page); }
    void put(uint32_t page) { stages_[memories_.device_of(page)].put(page); }
    void take(uint32_t page) { stages_[memories_.device_of(page)].take(page); }
    uint64_t refused() const;

private:
    bool load_on_each(std::span<const uint32_t> pages, int32_t cause, bool at_once,
                      std::span<placement_in_cache> placements);

    const memories &memories_;
    std::vector<cache_stage> stages_;
    std::vector<uint32_t> device_pages_;  // pages of one device
    std::vector<placement_in_cache> device_placements_;
};

}  // namespace moorage::core

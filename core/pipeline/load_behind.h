// load_behind.h - loads into the cache that no step waits for (MOORAGE_AND_LOAD).
//
// An absent expert that is computed elsewhere may be brought for later steps, behind all demand. It
// owns its slot of the cache from the beginning, with its segments in flight; it can be evicted
// before it has arrived, and a step that wants it meanwhile takes the transfer over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cache/caches.h"
#include "core/execute/cost_model.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class load_behind {
public:
    static constexpr uint32_t loads_max = 16;  // under way at one time

    // All borrowed.
    load_behind(const memories &truth, caches &cache, transport_stage &transport,
                const cost_model &costs);

    bool under_way(uint32_t page) const { return transfers_[page] != MOORAGE_NONE; }
    // Of what is under way.
    uint64_t moved_bytes(uint32_t page) const {
        return under_way(page) ? transport_.record(transfers_[page]).moved_bytes : 0;
    }
    uint64_t left_bytes() const;
    // Starts loads of pages of one layer that are neither cached nor under way, as far as there is
    // room for them; those that start are marked in `started`. False: the run has to end. [step]
    bool start(std::span<const uint32_t> pages, std::vector<uint8_t> &started);
    // A step wants the page: its transfer becomes demand and the caller's. MOORAGE_NONE: none.
    uint32_t take(uint32_t page);
    // A transfer of these ended.
    void arrived(uint32_t transfer);
    // The page lost its place in the cache, loaded or not.
    void release(uint32_t page);
    void release(std::span<const uint32_t> pages) {
        for (const uint32_t page : pages) release(page);
    }
    // Ends all loads; their pages keep their places and are to be evicted. [control]
    void cancel();

    uint64_t loads() const { return loads_; }  // arrived, or taken over by a step

private:
    void forget(uint32_t page);

    const memories &truth_;
    caches &cache_;
    transport_stage &transport_;
    const cost_model &costs_;
    std::vector<uint32_t> transfers_;  // [pages]
    std::vector<uint32_t> active_;     // pages
    std::vector<placement_in_cache> placed_;
    uint64_t loads_ = 0;
};

}  // namespace moorage::core

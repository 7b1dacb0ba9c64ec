// cache_stage.h - the cache stage of a step: finds room through the policy and checks its advice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/host/faults.h"
#include "core/host/fenced_memory.h"
#include "core/host/instance.h"
#include "core/store/ledger.h"

namespace moorage::core {

// The outcome for one page that was to be cached.
struct placement_in_cache {
    uint32_t page;
    uint32_t victim;  // evicted for it, or MOORAGE_NONE
    bool cached;      // false: no slot could be had, or the policy did not admit it
};

class cache_stage {
public:
    // All borrowed; they outlive the stage.
    cache_stage(instance &policy, ledger &ledger, fault_log &faults);

    // Makes room for `pages` (absent from the cache, distinct, all of one layer) and gives each its
    // slot. Makes one victims call for the missing slots, then per page admit, on_evict, on_load,
    // in order. `at_once`: a page that gets a slot is there at that moment. Wrong advice is
    // reported and replaced by the evictable page of the pool with the smallest number. Returns
    // false if the run has to end. `placements` is parallel to `pages`. [step]
    bool load(std::span<const uint32_t> pages, int32_t cause, bool at_once,
              std::span<placement_in_cache> placements);

    // Evicts through the policy until `pool` uses at most its slots (a budget shrank it). Appends
    // the victims to `evicted`. Pinned pages stay and go at the next call. [control]
    bool shrink(uint32_t pool, std::vector<uint32_t> &evicted);
    // Empties every pool, through on_evict, and appends the pages to `evicted`. Requires: nothing
    // is pinned, buffered or in flight. [control]
    void evict_all(std::vector<uint32_t> &evicted);
    // Asks the policy for the content of the pool's free slots. Their slots are taken now, and the
    // pages are appended to `loaded`. Wrong pages are reported and left out. False: the run has to
    // end. [control]
    bool fill(uint32_t pool, std::vector<uint32_t> &loaded);

    // A step of `layer` has ended. Pages that the policy gives up now lose their slots and are
    // appended to `evicted`. False: the run has to end. [step]
    bool give_up(uint32_t layer, std::vector<uint32_t> &evicted);
    // Whether the policy may give up pages.
    bool gives_up() const { return policy_.cache->give_up != nullptr; }

    // A placement puts a whole page into its pool, or takes it out. The policy is told (cause
    // MOORAGE_MIGRATION). Requires: the page is absent; or it may go. [step] give_way() is
    // explained in caches.h.
    void give_way(uint32_t page) { evict(page, MOORAGE_DEMAND); }
    void put(uint32_t page);
    void take(uint32_t page);

    // Loads that the policy did not admit.
    uint64_t refused() const { return refused_; }

private:
    uint32_t segments_of(uint32_t layer) const;
    void evict(uint32_t page, int32_t cause);
    // Whether the policy keeps a page that the host would take.
    bool policy_holds(uint32_t page) const {
        return policy_.cache->hold != nullptr &&
               policy_.call(entry_point::cache_hold, policy_.cache->hold, page) != 0;
    }
    uint32_t first_evictable(uint32_t pool, std::span<const uint32_t> taken, bool spares) const;
    // Fills victims_ with `count` checked victims of the pool, in order (fewer if there are no
    // more). `shrinks`: the pool shrinks, so pages that the policy holds go too if necessary.
    bool find_victims(uint32_t pool, uint32_t layer, uint32_t count, int32_t cause, bool shrinks);

    instance &policy_;
    ledger &ledger_;
    fault_log &faults_;
    fenced_vector<uint32_t> victims_;
    uint64_t refused_ = 0;
};

}  // namespace moorage::core

// load_behind.h - loads into the cache that no step waits for: loads by a dispatch policy
// (MOORAGE_AND_LOAD), and prefetches into slots (MOORAGE_PLACE_SLOT).
//
// An absent expert may be loaded for later steps, behind all demand. It owns its slot of the cache
// from the beginning, with its segments in flight. It can be evicted before it has arrived. A step
// that wants it meanwhile takes the transfer over.
//
// Every byte of a prefetch counts as used or wasted once its fate is known, as in the buffer. It is
// used when a step asks for the arrived expert, or takes over the transfer. It is wasted when the
// expert loses its slot before that, or the run ends. A transfer that ends under way counts as cut
// off, too. An expert under way may be computed elsewhere by a step. It still comes, and its fate
// is open.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cache/caches.h"
#include "core/execute/cost_model.h"
#include "core/source/step_counts.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class load_behind {
public:
    static constexpr uint32_t loads_max = 16;  // under way at one time

    // All borrowed.
    load_behind(const memories &memories, caches &cache, transport_stage &transport,
                const cost_model &costs, byte_counts &bytes);

    bool under_way(uint32_t page) const { return transfers_[page] != MOORAGE_NONE; }
    // Bytes that have arrived of a transfer under way.
    uint64_t moved_bytes(uint32_t page) const {
        return under_way(page) ? transport_.record(transfers_[page]).moved_bytes : 0;
    }
    uint64_t left_bytes() const;
    // Starts loads of pages of one layer that are neither cached nor under way, as far as there is
    // room. Marks the started ones in `started`. False: the run has to end. Requires: `purpose` is
    // owner::behind or owner::slot_prefetch. [step]
    bool start(owner purpose, std::span<const uint32_t> pages, std::vector<uint8_t> &started);
    // Whether some prefetched expert has arrived that no step has asked for.
    bool has_unasked() const { return unasked_count_ != 0; }
    // A step asks for the page. [step]
    void asked(uint32_t page);
    // A step wants the page. Its transfer becomes demand and the caller's. MOORAGE_NONE: there is
    // none.
    uint32_t take(uint32_t page);
    // A transfer of these ended.
    void arrived(uint32_t transfer);
    // The page lost its place in the cache, loaded or not.
    void release(uint32_t page);
    void release(std::span<const uint32_t> pages) {
        for (const uint32_t page : pages) release(page);
    }
    // Ends all loads. Their pages keep their places and are to be evicted. [control]
    void cancel();
    // The run is over. Prefetches that nobody has asked for count as wasted. [control]
    void drop_unasked();

    uint64_t loads() const { return loads_; }  // arrived, or taken over by a step

private:
    void forget(uint32_t page);
    void end_early(uint32_t page);
    void count_used(uint64_t sent_bytes);
    void count_wasted(uint64_t sent_bytes);

    const memories &memories_;
    caches &cache_;
    transport_stage &transport_;
    const cost_model &costs_;
    byte_counts &bytes_;
    std::vector<uint32_t> transfers_;      // [pages]
    std::vector<uint64_t> unasked_bytes_;  // [pages] prefetched, arrived, not asked for
    uint32_t unasked_count_ = 0;           // pages with such bytes
    std::vector<uint32_t> active_;         // pages
    std::vector<placement_in_cache> placed_;
    uint64_t loads_ = 0;
};

}  // namespace moorage::core

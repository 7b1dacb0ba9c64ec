// host_store.h - host memory as a cache of the disk: experts beyond its size are read when
// something needs them.
//
// It has two users: transfers towards fast memory, which the transport stage holds until the page
// is here, and experts computed on the CPU, whose operation waits for the read. A page in use is
// pinned. So is, from its beginning, a page that a step misses in fast memory. An absent page is
// read into a slot. If the cache policy refuses it or nothing may go, it passes through a frame
// beside the cache. If neither is free, it waits its turn, demand before the rest. Its policy is a
// cache policy like that of fast memory, with a view of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/cache/cache_stage.h"
#include "core/execute/cost_model.h"
#include "core/store/ledger.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class host_store final : public supply {
public:
    // Frames beside the slots: one is read while another is used.
    static constexpr uint32_t frames = 2;

    // All borrowed. Connects itself to the transport. Requires: `ledger` has one pool, whole
    // experts, and frames beside it.
    host_store(instance &policy, ledger &ledger, fault_log &faults, transport_stage &transport,
               const cost_model &costs);

    // A step may use the page. If the page has a slot, it keeps it until let_go().
    void hold(uint32_t page) {
        held_[page] = 1;
        ledger_.pin(page);
    }
    void let_go(uint32_t page) {
        held_[page] = 0;
        if (users_[page] == 0) ledger_.unpin(page, is_kept(page));
    }
    bool use(uint32_t page, owner purpose) override;
    // Reads the page ahead of its first use, unless it is here or too many such reads are under
    // way.
    void bring(uint32_t page);
    static constexpr uint32_t ahead_max = 16;
    void promote(uint32_t page) override;
    void done(uint32_t page) override;
    // A read has ended.
    void landed(uint32_t page);
    // Asks the policy for the first content. Call fill() with each of `pages`. False: the run has
    // to end. [control]
    bool choose_first(std::vector<uint32_t> &pages);
    // A step of `layer` has ended. Pages that the policy gives up lose their slots.
    void give_up(uint32_t layer);
    bool fill(uint32_t page);                      // false: no transfer is free
    uint32_t filling() const { return filling_; }  // reads for it under way

    // Time until a page could be used, if it were requested now. 0: at once.
    uint64_t wait_ns(uint32_t page) const;
    uint32_t slots() const { return ledger_.slots(0); }
    uint64_t requested() const { return requested_; }  // uses ...
    uint64_t hits() const { return hits_; }            // ... of pages that were here
    uint64_t first_bytes() const { return first_bytes_; }

private:
    bool is_present(uint32_t page) const { return ledger_.is_whole(page); }
    bool is_kept(uint32_t page) const {
        return ledger_.known_segments(page) != 0 &&
               (ledger_.state(page) & MOORAGE_STATE_BUFFERED) == 0;
    }
    bool claim(uint32_t page, owner purpose);
    bool find_room(uint32_t page, owner purpose);
    void read_waiting();
    void forget(uint32_t page);

    ledger &ledger_;
    cache_stage cache_;
    transport_stage &transport_;
    const cost_model &costs_;
    std::vector<uint32_t> users_;      // [pages]
    std::vector<uint8_t> held_;        // [pages] by the running step
    std::vector<uint32_t> transfers_;  // [pages] of the read, from its request to its end
    std::deque<uint32_t> waiting_;     // pages without a place; their reads are held
    std::vector<uint32_t> ahead_;      // pages that bring() reads
    std::vector<uint32_t> given_up_;   // used by one give_up()
    uint32_t filling_ = 0;
    uint64_t requested_ = 0, hits_ = 0, first_bytes_ = 0;
};

}  // namespace moorage::core

// transport_stage.h - the transport stage: transfers in, pieces onto idle links, completions out.
//
// The policy says which transfer's bytes go next and how many. This stage checks it, counts the
// bytes and tells the executor what has arrived. Wrong advice is reported and replaced by the
// oldest live transfer of the lowest class, whole.
#pragma once

#include <cstdint>
#include <vector>

#include "core/execute/executor.h"
#include "core/execute/links.h"
#include "core/host/faults.h"
#include "core/host/instance.h"

namespace moorage::core {

// The owner of a transfer asked for it, and is told when it ends. In order: the step under way, a
// prefetch into the buffer, a prefetch into a slot, a load that no step waits for, the first
// content of the caches, another home. The report counts both kinds of prefetch as one.
enum class owner : uint8_t { demand, prefetch, slot_prefetch, behind, fill, serve };
inline constexpr size_t owner_count = 6;
int32_t cause_of(owner owned_by);  // as policies are told: MOORAGE_DEMAND ...

// The store that loads come from, if host memory does not hold everything.
class supply {
public:
    virtual ~supply() = default;
    // One more transfer reads the page from the store. False: the page is not there yet; supplied()
    // says when.
    virtual bool use(uint32_t page, owner owned_by) = 0;
    // A transfer that waits for the page is now demand.
    virtual void promote(uint32_t page) = 0;
    // A transfer that reads the page, or was to read it, has ended.
    virtual void done(uint32_t page) = 0;
};

struct transfer_record {
    bool live = false;       // submitted, not yet ended
    bool held = false;       // held by the store, until there is something to send
    bool cancelled = false;  // ends with its pieces under way
    uint8_t segments = MOORAGE_WHOLE, version = 0;
    owner owned_by = owner::demand;
    uint32_t link = 0, page = MOORAGE_NONE;
    uint64_t bytes = 0;
    uint64_t unsent_bytes = 0;    // not yet handed to the link
    uint64_t moved_bytes = 0;     // have crossed
    uint64_t prefetch_bytes = 0;  // of the moved bytes, those moved while it was a prefetch
    uint64_t busy_ns = 0;         // time of the link for it

    uint64_t under_way_bytes() const { return bytes - unsent_bytes - moved_bytes; }
};

class transport_stage {
public:
    // All borrowed. Ids of transfers are below transfers_max. Pages belong to layers of `experts`
    // experts.
    transport_stage(instance &policy, executor &executor, fault_log &faults, uint32_t transfers_max,
                    uint32_t layers, uint32_t experts);

    // The store that feeds the link towards fast memory. Borrowed.
    void connect(supply &supply) { supply_ = &supply; }
    // The page is there now: transfers that were held for it may be sent.
    void supplied(uint32_t page);

    // A new transfer of `bytes` >= 1: the page's `segments` in one of its versions. Returns its id,
    // which stays taken until release(). MOORAGE_NONE: all ids are taken.
    uint32_t submit(owner owned_by, uint32_t link, uint32_t page, uint8_t segments, uint64_t bytes,
                    uint8_t version = 0);
    // The same, but nothing is sent before start(). Requires: not towards fast memory.
    uint32_t prepare(owner owned_by, uint32_t link, uint32_t page, uint8_t segments,
                     uint64_t bytes);
    void start(uint32_t id);
    // The step under way takes the transfer over. Bytes that are not sent yet count as its own.
    void promote(uint32_t id);
    void cancel(uint32_t id);
    // The id may be used again once the transfer has ended.
    void release(uint32_t id);

    // A piece on `link` has crossed. Returns the transfer that ended with it, or MOORAGE_NONE.
    uint32_t piece_done(uint32_t link, uint64_t duration_ns);
    // No piece is under way on it.
    bool is_idle(uint32_t link) const { return lanes_[link].count == 0; }

    const transfer_record &record(uint32_t id) const { return records_[id]; }
    uint64_t moved_bytes(uint32_t link) const { return lanes_[link].moved_bytes; }
    // Bytes of all links towards devices together.
    uint64_t loaded_bytes() const;
    bool are_loads_idle() const;
    // Bytes handed to the links towards fast memory, with pieces under way: by owner, and for the
    // experts of a layer for all owners but owner::fill.
    uint64_t sent_bytes(owner owned_by) const {
        return sent_bytes_by_owner_[static_cast<size_t>(owned_by)];
    }
    uint64_t sent_bytes_of_layer(uint32_t layer) const { return sent_bytes_by_layer_[layer]; }
    uint64_t sent_bytes_of_link(uint32_t link) const {
        return lanes_[link].sent_bytes;
    }  // likewise
    // Bytes of the oldest piece under way.
    uint64_t piece_bytes(uint32_t link) const { return lanes_[link].oldest().bytes; }
    // The transfer of the oldest piece under way on the link. Requires: there is one.
    const transfer_record &next_to_end(uint32_t link) const {
        return records_[lanes_[link].oldest().id];
    }
    // Bytes of demand transfers on the link that have not crossed yet.
    uint64_t demand_backlog_bytes(uint32_t link) const { return lanes_[link].backlog_bytes; }

private:
    // A link: its pieces under way, in order.
    struct lane {
        struct sent_piece {
            uint32_t id;
            uint64_t bytes;
        };
        uint32_t pieces_max = 1, first = 0, count = 0;
        sent_piece pieces[pieces_at_once_max] = {};
        uint64_t sent_bytes = 0, moved_bytes = 0, backlog_bytes = 0;
        const sent_piece &oldest() const { return pieces[first]; }
        void push(sent_piece piece) { pieces[(first + count++) % pieces_at_once_max] = piece; }
        void pop() { first = (first + 1) % pieces_at_once_max, --count; }
    };
    inline uint32_t add_record(owner owned_by, uint32_t link, uint32_t page, uint8_t segments,
                               uint64_t bytes, uint8_t version);
    inline void offer(uint32_t id, owner owned_by, uint32_t link, uint32_t page, uint64_t bytes);
    void notify_supply(const transfer_record &record) {
        if (supply_ && is_h2d(record.link)) supply_->done(record.page);
    }
    // Keeps the link as busy as possible.
    void fill_link(uint32_t link) {
        while (lanes_[link].count < lanes_[link].pieces_max && send_one(link)) {
        }
    }
    bool send_one(uint32_t link);
    bool is_valid_piece(uint32_t link, const moorage_piece &piece) const;
    moorage_piece replacement(uint32_t link) const;
    void free_id(uint32_t id);

    instance &policy_;
    executor &executor_;
    fault_log &faults_;
    supply *supply_ = nullptr;
    std::vector<uint32_t> held_;  // waiting for the supply
    std::vector<transfer_record> records_;
    std::vector<uint8_t> release_states_;
    std::vector<uint32_t> free_ids_;
    lane lanes_[links_max];
    uint64_t sent_bytes_by_owner_[owner_count] = {};
    uint32_t experts_;
    std::vector<uint64_t> sent_bytes_by_layer_;
};

}  // namespace moorage::core

// transfer_queue.hpp - for transport policies: transfers waiting for links, demand before the rest.
#pragma once

#include <vector>

#include "policy.hpp"

namespace moorage {

// Two rings of ids per link, linked through arrays. Nothing allocates after resize().
class transfer_queue {
public:
    void resize(uint32_t transfers_max, uint32_t links) {
        transfers_ = transfers_max;
        entries_.resize(transfers_max);
        ring_.resize(size_t{transfers_max} + 2 * size_t{links});
        clear();
    }
    void clear() {
        for (uint32_t i = 0; i < ring_.size(); ++i) ring_[i] = {i, i};
    }

    void submit(const transfer &transfer) {
        entries_[transfer.id] = {transfer.bytes, transfer.link, transfer.cause};
        append(transfer.id);
    }
    void remove(uint32_t id) {
        const auto [previous, next] = ring_[id];
        ring_[previous].next = next;
        ring_[next].previous = previous;
        ring_[id] = {id, id};
    }
    // A transfer that was sent completely is in no queue, and stays out.
    void promote(uint32_t id, int32_t cause) {
        entries_[id].cause = cause;
        if (ring_[id].next == id) return;
        remove(id);
        append(id);
    }
    // The next transfer of the link, or none.
    uint32_t first(uint32_t link) const {
        for (const uint32_t head : {transfers_ + 2 * link, transfers_ + 2 * link + 1})
            if (ring_[head].next != head) return ring_[head].next;
        return none;
    }
    void sent(uint32_t id, uint64_t bytes) {
        entries_[id].left_bytes -= bytes;
        if (entries_[id].left_bytes == 0) remove(id);
    }
    uint64_t left_bytes(uint32_t id) const { return entries_[id].left_bytes; }
    int32_t cause(uint32_t id) const { return entries_[id].cause; }

private:
    struct entry {
        uint64_t left_bytes;
        uint32_t link;
        int32_t cause;
    };
    struct node {
        uint32_t previous, next;
    };
    void append(uint32_t id) {
        const entry &entry = entries_[id];
        const uint32_t head = transfers_ + 2 * entry.link + (entry.cause == MOORAGE_DEMAND ? 0 : 1);
        const uint32_t last = ring_[head].previous;
        ring_[id] = {last, head};
        ring_[last].next = id;
        ring_[head].previous = id;
    }

    uint32_t transfers_ = 0;
    std::vector<entry> entries_;
    std::vector<node> ring_;
};

}  // namespace moorage

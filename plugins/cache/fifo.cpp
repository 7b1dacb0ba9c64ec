// fifo.cpp - first in, first out: evicts the expert that was loaded longest ago.
//
// Source: textbook baseline. The order is the order of loads; requests do not change it. A ring per
// pool holds the pages in this order. A page that leaves from the middle leaves a hole. Holes are
// closed when the ring is full. Cost per call: a load amortised O(1); a victim O(1) plus skipped
// holes and pinned pages.

#include <moorage/moorage.hpp>

#include <vector>

namespace {

class fifo {
    // Positions in the ring of a pool: front is the oldest load, back the place of the next one.
    struct ring {
        uint32_t front, back, holes;
    };

public:
    static constexpr moorage::about about{
        .name = "fifo",
        .summary = "evicts the expert that was loaded longest ago",
        .source = "textbook baseline",
    };

    explicit fifo(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        const uint32_t pages = limits.layers * limits.experts;
        room_ = pages / limits.pools + 1;
        entries_.resize(size_t{limits.pools} * room_);
        places_.resize(pages);
        rings_.resize(limits.pools);
        reset();
    }

    void reset() {
        places_.assign(places_.size(), moorage::none);
        rings_.assign(rings_.size(), {0, 0, 0});
    }

    void on_load(uint32_t page, uint32_t, int32_t) {
        if (places_[page] != moorage::none) return;
        const uint32_t pool = pool_of(page);
        ring &of = rings_[pool];
        if (after(of.back) == of.front) close_holes(pool);
        entries(pool)[of.back] = page;
        places_[page] = of.back;
        of.back = after(of.back);
    }

    void on_evict(uint32_t page, int32_t) {
        if (places_[page] == moorage::none) return;
        const uint32_t pool = pool_of(page);
        ring &of = rings_[pool];
        entries(pool)[places_[page]] = moorage::none;
        places_[page] = moorage::none;
        for (++of.holes; of.front != of.back && entries(pool)[of.front] == moorage::none;
             --of.holes)
            of.front = after(of.front);
    }

    void victims(const moorage::room &room, moorage::pages &out) {
        const ring of = rings_[room.pool];
        for (uint32_t at = of.front; at != of.back && !out.full(); at = after(at)) {
            const uint32_t page = entries(room.pool)[at];
            if (page != moorage::none && moorage::evictable(state_[page])) out.push(page);
        }
    }

    // The fast path of counting replays. Every request is written behind the last entry. A miss
    // makes it the last entry.
    class turns {
    public:
        explicit turns(fifo &of)
            : of_(of),
              entries_(of.entries(0)),
              places_(of.places_.data()),
              room_(of.room_),
              ring_(of.rings_[0]) {}
        turns(const turns &) = delete;
        ~turns() { of_.rings_[0] = ring_; }
        uint32_t request(uint32_t page, uint32_t missed) {
            const uint32_t kept = missed - 1;  // all bits if it did not miss, else none
            const uint32_t out = (entries_[ring_.front] & ~kept) | (page & kept);
            const uint32_t place = (ring_.back & ~kept) | (places_[page] & kept);
            entries_[ring_.back] = page;
            places_[out] = moorage::none;
            places_[page] = place;
            ring_.front += missed;
            ring_.back += missed;
            if (ring_.front == room_) ring_.front = 0;
            if (ring_.back == room_) ring_.back = 0;
            return out;
        }

    private:
        fifo &of_;
        uint32_t *entries_, *places_;
        const uint32_t room_;
        ring ring_;
    };
    turns single_requests() {
        close_holes(0);
        return turns(*this);
    }

private:
    uint32_t pool_of(uint32_t page) const { return rings_.size() == 1 ? 0 : page / (room_ - 1); }
    uint32_t *entries(uint32_t pool) { return entries_.data() + size_t{pool} * room_; }
    uint32_t after(uint32_t place) const { return place + 1 == room_ ? 0 : place + 1; }

    void close_holes(uint32_t pool) {
        ring &of = rings_[pool];
        if (of.holes == 0) return;
        uint32_t back = of.front;
        for (uint32_t at = of.front; at != of.back; at = after(at)) {
            const uint32_t page = entries(pool)[at];
            if (page == moorage::none) continue;
            entries(pool)[back] = page;
            places_[page] = back;
            back = after(back);
        }
        of.back = back;
        of.holes = 0;
    }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t room_ = 1;              // entries of a ring: one more than pages, so back is always
                                     // free
    std::vector<uint32_t> entries_;  // [pools, room_] pages; none: a hole
    std::vector<uint32_t> places_;   // [pages] place in its ring, or none
    std::vector<ring> rings_;        // [pools]
};

}  // namespace

MOORAGE_POLICIES("org.moorage.fifo", "1.0.0", fifo)

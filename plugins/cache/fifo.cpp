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
        ring_entries_ = pages / limits.pools + 1;
        entries_.resize(size_t{limits.pools} * ring_entries_);
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
        ring &ring = rings_[pool];
        if (next_place(ring.back) == ring.front) close_holes(pool);
        entries(pool)[ring.back] = page;
        places_[page] = ring.back;
        ring.back = next_place(ring.back);
    }

    void on_evict(uint32_t page, int32_t) {
        if (places_[page] == moorage::none) return;
        const uint32_t pool = pool_of(page);
        ring &ring = rings_[pool];
        entries(pool)[places_[page]] = moorage::none;
        places_[page] = moorage::none;
        for (++ring.holes; ring.front != ring.back && entries(pool)[ring.front] == moorage::none;
             --ring.holes)
            ring.front = next_place(ring.front);
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        const ring ring = rings_[room.pool];
        for (uint32_t place = ring.front; place != ring.back && !victims.full();
             place = next_place(place)) {
            const uint32_t page = entries(room.pool)[place];
            if (page != moorage::none && moorage::evictable(state_[page])) victims.push(page);
        }
    }

    // The fast path of counting replays. Every request is written behind the last entry. A miss
    // makes it the last entry.
    class single_request_run {
    public:
        explicit single_request_run(fifo &policy)
            : policy_(policy),
              entries_(policy.entries(0)),
              places_(policy.places_.data()),
              ring_entries_(policy.ring_entries_),
              ring_(policy.rings_[0]) {}
        single_request_run(const single_request_run &) = delete;
        ~single_request_run() { policy_.rings_[0] = ring_; }
        uint32_t request(uint32_t page, uint32_t missed) {
            const uint32_t hit_mask = missed - 1;  // all bits if it did not miss, else none
            const uint32_t victim = (entries_[ring_.front] & ~hit_mask) | (page & hit_mask);
            const uint32_t place = (ring_.back & ~hit_mask) | (places_[page] & hit_mask);
            entries_[ring_.back] = page;
            places_[victim] = moorage::none;
            places_[page] = place;
            ring_.front += missed;
            ring_.back += missed;
            if (ring_.front == ring_entries_) ring_.front = 0;
            if (ring_.back == ring_entries_) ring_.back = 0;
            return victim;
        }

    private:
        fifo &policy_;
        uint32_t *entries_, *places_;
        const uint32_t ring_entries_;
        ring ring_;
    };
    single_request_run single_requests() {
        close_holes(0);
        return single_request_run(*this);
    }

private:
    uint32_t pool_of(uint32_t page) const {
        return rings_.size() == 1 ? 0 : page / (ring_entries_ - 1);
    }
    uint32_t *entries(uint32_t pool) { return entries_.data() + size_t{pool} * ring_entries_; }
    uint32_t next_place(uint32_t place) const { return place + 1 == ring_entries_ ? 0 : place + 1; }

    void close_holes(uint32_t pool) {
        ring &ring = rings_[pool];
        if (ring.holes == 0) return;
        uint32_t back = ring.front;
        for (uint32_t place = ring.front; place != ring.back; place = next_place(place)) {
            const uint32_t page = entries(pool)[place];
            if (page == moorage::none) continue;
            entries(pool)[back] = page;
            places_[page] = back;
            back = next_place(back);
        }
        ring.back = back;
        ring.holes = 0;
    }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t ring_entries_ = 1;      // entries of a ring: one more than pages, so back is always
                                     // free
    std::vector<uint32_t> entries_;  // [pools, ring_entries_] pages; none: a hole
    std::vector<uint32_t> places_;   // [pages] place in its ring, or none
    std::vector<ring> rings_;        // [pools]
};

}  // namespace

MOORAGE_POLICIES("org.moorage.fifo", "1.0.0", fifo)

// clock.cpp - CLOCK: a hand goes round the slots and gives requested experts a second chance.
//
// Source: textbook (FIFO with reinsertion, one reference bit). An expert takes the place of the
// expert that was evicted for it, or a new place at the end of the ring. A hit sets its bit. The
// hand clears the bit when it passes. It passes pinned experts and leaves their bits unchanged.
// Cost per call: O(experts of the step); a victim amortised O(1): each pass pays for one hit.

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

#include <vector>

namespace {

class clock_hand {
public:
    static constexpr moorage::about about{
        .name = "clock",
        .summary = "evicts the next expert in the ring without a hit since the hand last passed",
        .source = "textbook: FIFO with reinsertion, one reference bit",
    };

    explicit clock_hand(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        state_ = host_.residency()->host_state;
        const uint32_t pages = limits.layers * limits.experts;
        lists_.assign(pages, limits.pools);
        referenced_.resize(pages);
        last_call_.resize(pages);
        rings_.resize(limits.pools);
        reset();
    }

    void reset() {
        lists_.clear();
        referenced_.assign(referenced_.size(), 0);
        last_call_.assign(last_call_.size(), 0);
        calls_ = 0;
        for (uint32_t pool = 0; pool < rings_.size(); ++pool)
            rings_[pool] = {lists_.end(pool), lists_.end(pool), 0, false};
    }

    // on_load clears the bit again, so only hits count.
    void observe(const moorage::step &step) {
        for (const uint32_t expert : step.distinct()) referenced_[step.page(expert)] = 1;
    }

    void on_load(uint32_t page, uint32_t, int32_t) {
        if (lists_.contains(page)) return;
        const uint32_t pool = pool_of(page);
        ring &ring = rings_[pool];
        lists_.insert(page, ring.gap);
        if (ring.hand_in_gap) ring.hand = page;
        ring.gap = lists_.end(pool);
        ring.hand_in_gap = false;
        referenced_[page] = 0;
        ++ring.used;
    }

    void on_evict(uint32_t page, int32_t) {
        if (!lists_.contains(page)) return;
        ring &ring = rings_[pool_of(page)];
        const uint32_t next = lists_.next(page);
        ring.hand_in_gap = ring.hand == page;
        if (ring.hand_in_gap) ring.hand = next;
        ring.gap = next;
        lists_.unlink(page);
        --ring.used;
    }

    // The first round clears every bit that it meets. So two rounds meet every page that may be
    // evicted.
    void victims(const moorage::room &room, moorage::pages &victims) {
        ring &ring = rings_[room.pool];
        const uint32_t end = lists_.end(room.pool);
        ++calls_;
        for (uint32_t left = 2 * ring.used + 2; left > 0 && !victims.full(); --left) {
            const uint32_t page = ring.hand;
            ring.hand = lists_.next(page);
            if (page == end || !moorage::evictable(state_[page]) || last_call_[page] == calls_)
                continue;
            if (!referenced_[page]) {
                last_call_[page] = calls_;
                victims.push(page);
            }
            referenced_[page] = 0;
        }
    }

private:
    struct ring {
        uint32_t hand;  // where the next search begins
        uint32_t gap;   // the next load goes before this page: the place of the last eviction, or
                        // the end
        uint32_t used;
        bool hand_in_gap;  // the hand stood at the place of the last eviction
    };
    uint32_t pool_of(uint32_t page) const { return rings_.size() == 1 ? 0 : page / experts_; }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0;
    moorage::page_lists lists_;        // per pool, in order of place
    std::vector<uint8_t> referenced_;  // [pages]
    std::vector<uint64_t> last_call_;  // [pages] the call that named the page last: no page is
                                       // named twice
    std::vector<ring> rings_;          // [pools]
    uint64_t calls_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.clock", "1.0.0", clock_hand)

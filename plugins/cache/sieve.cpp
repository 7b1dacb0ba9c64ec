// sieve.cpp - SIEVE: a hand sweeps from the oldest load to the youngest past those requested again.
//
// Source: SIEVE is Simpler than LRU (NSDI 2024), details as in libCacheSim. A load enters young and
// unvisited. A hit sets its visited bit and moves nothing. The hand clears visited bits, takes the
// first expert without one and stays there. After the youngest it begins again at the oldest. It
// passes pinned experts and leaves their bits unchanged. Cost per call: O(experts of the step); a
// victim amortised O(1): each pass pays for one hit.

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

#include <vector>

namespace {

class sieve {
public:
    static constexpr moorage::about about{
        .name = "sieve",
        .summary = "evicts the first expert without a hit since the hand last passed",
        .source = "SIEVE is Simpler than LRU, NSDI 2024",
    };

    explicit sieve(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        state_ = host_.residency()->host_state;
        const uint32_t pages = limits.layers * limits.experts;
        lists_.assign(pages, limits.pools);
        visited_.resize(pages);
        last_call_.resize(pages);
        hands_.resize(limits.pools);
        used_.resize(limits.pools);
        reset();
    }

    void reset() {
        lists_.clear();
        visited_.assign(visited_.size(), 0);
        last_call_.assign(last_call_.size(), 0);
        used_.assign(used_.size(), 0);
        calls_ = 0;
        for (uint32_t pool = 0; pool < hands_.size(); ++pool) hands_[pool] = lists_.end(pool);
    }

    // on_load clears the bit again, so only hits count.
    void observe(const moorage::step &step) {
        for (const uint32_t expert : step.distinct()) visited_[step.page(expert)] = 1;
    }

    void on_load(uint32_t page, uint32_t, int32_t) {
        if (lists_.contains(page)) return;
        const uint32_t pool = pool_of(page);
        lists_.append(page, pool);
        visited_[page] = 0;
        ++used_[pool];
    }

    void on_evict(uint32_t page, int32_t) {
        if (!lists_.contains(page)) return;
        const uint32_t pool = pool_of(page);
        if (hands_[pool] == page) hands_[pool] = lists_.next(page);
        lists_.unlink(page);
        --used_[pool];
    }

    // The first round clears every bit that it meets. So two rounds meet every page that may be
    // evicted.
    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t end = lists_.end(room.pool);
        uint32_t hand = hands_[room.pool];
        ++calls_;
        for (uint32_t left = 2 * used_[room.pool] + 2; left > 0 && !victims.full(); --left) {
            const uint32_t page = hand;
            hand = lists_.next(page);
            if (page == end || !moorage::evictable(state_[page]) || last_call_[page] == calls_)
                continue;
            if (!visited_[page]) {
                last_call_[page] = calls_;
                victims.push(page);
            }
            visited_[page] = 0;
        }
        hands_[room.pool] = hand;
    }

private:
    uint32_t pool_of(uint32_t page) const { return hands_.size() == 1 ? 0 : page / experts_; }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0;
    moorage::page_lists lists_;     // per pool, oldest load first
    std::vector<uint8_t> visited_;  // [pages]
    std::vector<uint64_t>
        last_call_;  // [pages] the call that named it last, so that none is named twice
    std::vector<uint32_t> hands_;  // [pools] start of the next search; the end of the list means
                                   // the oldest
    std::vector<uint32_t> used_;   // [pools]
    uint64_t calls_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.sieve", "1.0.0", sieve)

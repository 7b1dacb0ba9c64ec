// fifo.cpp - first in, first out: evicts the expert that was loaded longest ago.
//
// Source: textbook baseline. Order of loads; requests do not change it.
// Cost per call: a load O(1); a victim O(1) plus the pinned ones skipped.

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

namespace {

class fifo {
public:
    static constexpr moorage::about about{
        .name = "fifo",
        .summary = "evicts the expert that was loaded longest ago",
        .source = "textbook baseline",
    };

    explicit fifo(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
        lists_.assign(limits.layers * limits.experts, limits.pools);
    }

    void reset() { lists_.clear(); }

    void on_load(uint32_t page, uint32_t, int32_t) {
        lists_.append(page, pools_ == 1 ? 0 : page / experts_);
    }

    void on_evict(uint32_t page, int32_t) { lists_.unlink(page); }

    void victims(const moorage::room &room, moorage::pages &out) {
        const uint32_t end = lists_.end(room.pool);
        for (uint32_t page = lists_.first(room.pool); page != end && !out.full();
             page = lists_.next(page))
            if (moorage::evictable(state_[page])) out.push(page);
    }

private:
    moorage::host host_;
    const uint8_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1;
    moorage::page_lists lists_;  // per pool, oldest load first
};

}  // namespace

MOORAGE_POLICIES("org.moorage.fifo", "1.0.0", fifo)

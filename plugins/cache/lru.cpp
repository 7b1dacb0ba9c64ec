// lru.cpp - least recently used: evicts the expert whose last request is longest ago.
//
// Source: Cache Management for MoE LLMs (the layered-paging paper), the baseline. The experts of a
// step are stamped in the order of the step, best first, so the best-scored is the oldest of them.
// Cost per call: O(experts of the step); a victim O(1) plus the pinned ones skipped.

#include <moorage/moorage.hpp>

#include <vector>

namespace {

class lru {
public:
    static constexpr moorage::about about{
        .name = "lru",
        .summary = "evicts the least recently used expert",
        .source = "Cache Management for MoE LLMs, baseline",
    };

    explicit lru(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pools_ = limits.pools;
        pages_ = limits.layers * limits.experts;
        state_ = host_.residency()->host_state;
        links_.resize(pages_ + pools_);
        reset();
    }

    void reset() {
        for (uint32_t i = 0; i < links_.size(); ++i) links_[i] = {i, i};
    }

    void observe(const moorage::step &step) {
        const uint32_t head = pages_ + (pools_ == 1 ? 0 : step.layer);
        for (const uint32_t expert : step.distinct()) touch(step.page(expert), head);
    }

    void on_load(uint32_t page, uint32_t, int32_t) {
        const uint32_t head = pages_ + (pools_ == 1 ? 0 : page / experts_);
        if (links_[page].next == page) touch(page, head);
    }

    void on_evict(uint32_t page, int32_t) { unlink(page); }

    void victims(const moorage::room &room, moorage::pages &out) {
        const uint32_t head = pages_ + room.pool;
        for (uint32_t page = links_[head].next; page != head && !out.full();) {
            const uint32_t next = links_[page].next;
            if (moorage::evictable(state_[page])) out.push(page);
            else if (!moorage::resident(state_[page])) unlink(page);
            page = next;
        }
    }

private:
    // Doubly linked ring per pool, oldest first; a page alone in its ring is in none.
    struct link {
        uint32_t previous, next;
    };
    void unlink(uint32_t page) {
        const auto [previous, next] = links_[page];
        links_[previous].next = next;
        links_[next].previous = previous;
        links_[page] = {page, page};
    }
    void touch(uint32_t page, uint32_t head) {
        const auto [before, after] = links_[page];
        links_[before].next = after;
        links_[after].previous = before;
        const uint32_t last = links_[head].previous;
        links_[page] = {last, head};
        links_[last].next = page;
        links_[head].previous = page;
    }

    moorage::host host_;
    const uint8_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1, pages_ = 0;
    std::vector<link> links_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.lru", "1.0.0", lru)

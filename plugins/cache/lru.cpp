// lru.cpp - least recently used: evicts the expert whose last request is longest ago.
//
// Source: Cache Management for MoE LLMs (the layered-paging paper), the baseline. The experts of a
// step are stamped in the order of the step, best first. So the best-scored one is the oldest of
// them. `stamp` reverses that. A prefetched expert counts as used when it is loaded. Cost per call:
// O(experts of the step); a victim O(1) plus the skipped pinned pages.

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

namespace {

class lru {
public:
    static constexpr moorage::about about{
        .name = "lru",
        .summary = "evicts the least recently used expert",
        .source = "Cache Management for MoE LLMs, baseline",
    };
    static constexpr moorage::param params[] = {
        moorage::text("stamp", "best_first", "best_first|best_last",
                      "order of use within a step: the expert stamped first is the oldest"),
    };

    explicit lru(const moorage::setup &setup)
        : host_(setup.host), best_first_(setup.text("stamp") == "best_first") {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
        lists_.assign(limits.layers * limits.experts, limits.pools);
    }

    void reset() {
        lists_.clear();
        listed_absent_ = 0;
    }

    // Experts that are not resident are listed too, because their loads follow and keep this order.
    void observe(const moorage::step &step) {
        const uint32_t pool = pools_ == 1 ? 0 : step.layer;
        if (best_first_)
            for (const uint32_t expert : step.distinct()) touch(step.page(expert), pool);
        else
            for (uint32_t i = step.distinct_count; i-- > 0;)
                touch(step.page(step.host_distinct[i]), pool);
    }

    void on_load(uint32_t page, uint32_t, int32_t cause) {
        const bool waited = lists_.contains(page);
        listed_absent_ -= waited;
        if (!waited || cause != MOORAGE_DEMAND)
            lists_.append(page, pools_ == 1 ? 0 : page / experts_);
    }

    void on_evict(uint32_t page, int32_t) { lists_.unlink(page); }

    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t end = lists_.end(room.pool);
        for (uint32_t page = lists_.first(room.pool); page != end && !victims.full();) {
            const uint32_t next = lists_.next(page);
            if (moorage::evictable(state_[page]))
                victims.push(page);
            else
                forget_if_departed(page);
            page = next;
        }
    }

    // The fast path of counting replays.
    struct single_request_run {
        uint32_t request(uint32_t page, uint32_t missed) { return list.append(page, missed); }
        moorage::page_list_run list;
    };
    single_request_run single_requests() {
        if (listed_absent_ > 0) remove_departed(0);
        return {{lists_, 0}};
    }
    struct whole_step_run {
        void request(std::span<const uint32_t> pages, std::span<const uint32_t> missed,
                     std::span<uint32_t> gone) {
            if (best_first)
                for (const uint32_t page : pages) list.append(page, 0);
            else
                for (size_t i = pages.size(); i-- > 0;) list.append(pages[i], 0);
            for (size_t i = 0; i < pages.size(); ++i)
                if (missed[i]) gone[i] = list.take_first();
        }
        moorage::page_list_run list;
        bool best_first;
    };
    whole_step_run whole_steps() {
        if (listed_absent_ > 0) remove_departed(0);
        return {{lists_, 0}, best_first_};
    }

private:
    void touch(uint32_t page, uint32_t pool) {
        listed_absent_ += !lists_.contains(page);
        lists_.append(page, pool);
    }
    // A page that was requested but got no slot has no place in the order.
    void forget_if_departed(uint32_t page) {
        if (!moorage::departed(state_[page])) return;
        lists_.unlink(page);
        --listed_absent_;
    }
    void remove_departed(uint32_t pool) {
        for (uint32_t page = lists_.first(pool); page != lists_.end(pool);) {
            const uint32_t next = lists_.next(page);
            forget_if_departed(page);
            page = next;
        }
    }

    moorage::host host_;
    const bool best_first_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1;
    uint32_t listed_absent_ = 0;  // pages that are listed and have no slot
    moorage::page_lists lists_;   // per pool, least recently used first
};

}  // namespace

MOORAGE_POLICIES("org.moorage.lru", "1.0.0", lru)

// belady.cpp - the offline optimum: evicts the expert whose next request is furthest ahead.
//
// Source: Belady 1966; layered-paging paper, OPT. Needs the future of the trace. Pages that are
// never requested again are evicted first. Ties cost nothing: smallest page. With a `lookahead` of
// w tokens, only requests up to w tokens after the running one are known. Pages that are not
// requested until then are evicted first, least recently used. The others follow, furthest request
// first.
//
// Pages without a known request are in a list by last use, the others in a heap by next request. A
// listed page comes into sight as time passes. It changes over when the list is next walked. Cost
// per call: O(log slots) per expert of the step; a victim amortised O(log slots).

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

#include <vector>

namespace {

class belady {
public:
    static constexpr moorage::about about{
        .name = "belady",
        .summary = "evicts the expert requested furthest in the future (offline optimum)",
        .source = "Belady 1966; Cache Management for MoE LLMs, OPT",
        .needs = MOORAGE_NEEDS_FUTURE,
    };
    static constexpr moorage::param params[] = {
        moorage::integer("lookahead", 0, 0, int64_t{1} << 40,
                         "tokens known in advance, least recently used beyond; 0: all"),
    };

    explicit belady(const moorage::setup &setup)
        : host_(setup.host), lookahead_(static_cast<uint64_t>(setup.integer("lookahead"))) {
        if (!host_.has_future())
            throw std::invalid_argument(
                "belady: the host offers no future of the trace; use it in a replay or an "
                "emulation");
    }

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
        const uint32_t pages = limits.layers * limits.experts;
        next_uses_.resize(pages);
        lists_.assign(pages, limits.pools);
        heaps_.assign(pages, limits.pools);
        set_aside_.reserve(pages);
        reset();
    }

    void reset() {
        next_uses_.assign(next_uses_.size(), {moorage::never, moorage::never});
        lists_.clear();
        heaps_.clear();
        step_ = 0;
        token_ = 0;
    }

    // An expert out of sight is listed even if it is not resident, because its load keeps this
    // order.
    void observe(const moorage::step &step) {
        step_ = step.index;
        token_ = step.token;
        const uint32_t pool = pools_ == 1 ? 0 : step.layer;
        for (const uint32_t expert : step.distinct()) {
            const uint32_t page = step.page(expert);
            update_next_use(page);
            const bool in_heap = heaps_.contains(page);
            if (!in_sight(page)) {
                if (in_heap) heaps_.erase(pool, page);
                lists_.append(page, pool);
            } else if (in_heap) {
                heaps_.lower(pool, {{next_uses_[page].step, page}, page});
            } else if (lists_.contains(page)) {
                lists_.unlink(page);
                if (state_[page] & slot_bits) push_to_heap(page, pool);
            }
        }
    }

    void on_load(uint32_t page, uint32_t, int32_t cause) {
        if (heaps_.contains(page)) return;
        const uint32_t pool = pool_of(page);
        if (cause != MOORAGE_DEMAND) update_next_use(page);
        if (in_sight(page)) {
            lists_.unlink(page);
            push_to_heap(page, pool);
        } else if (cause != MOORAGE_DEMAND || !lists_.contains(page)) {
            lists_.append(page, pool);
        }
    }

    void on_evict(uint32_t page, int32_t) {
        lists_.unlink(page);
        if (heaps_.contains(page)) heaps_.erase(pool_of(page), page);
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t end = lists_.end(room.pool);
        for (uint32_t page = lists_.first(room.pool); page != end && !victims.full();) {
            const uint32_t next = lists_.next(page);
            if (moorage::departed(state_[page])) {
                lists_.unlink(page);  // was never loaded
            } else if (in_sight(page)) {
                lists_.unlink(page);
                push_to_heap(page, room.pool);
            } else if (moorage::evictable(state_[page])) {
                victims.push(page);
            }
            page = next;
        }
        set_aside_.clear();
        while (!victims.full() && heaps_.size(room.pool) > 0) {
            const uint32_t page = heaps_.top(room.pool).page;
            if (moorage::evictable(state_[page])) victims.push(page);
            if (victims.full()) break;
            heaps_.erase(room.pool, page);
            if (!moorage::departed(state_[page])) set_aside_.push_back(page);
        }
        for (const uint32_t page : set_aside_) push_to_heap(page, room.pool);
    }

private:
    struct request {
        uint64_t step, token;
    };
    struct eviction_key {
        uint64_t step;
        uint32_t page;
        bool operator<(const eviction_key &right) const {
            return step != right.step ? step > right.step : page < right.page;
        }
    };
    static constexpr uint32_t slot_bits = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT;

    uint32_t pool_of(uint32_t page) const { return pools_ == 1 ? 0 : page / experts_; }
    bool in_sight(uint32_t page) const {
        return lookahead_ == 0 || next_uses_[page].token <= token_ + lookahead_;
    }
    void update_next_use(uint32_t page) {
        request &next = next_uses_[page];
        next.token = moorage::never;
        next.step = host_.next_use(page, step_, lookahead_ == 0 ? nullptr : &next.token);
        if (next.step == moorage::never) next.token = moorage::never;
    }
    void push_to_heap(uint32_t page, uint32_t pool) {
        heaps_.push(pool, {{next_uses_[page].step, page}, page});
    }

    moorage::host host_;
    const uint64_t lookahead_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1;
    uint64_t step_ = 0, token_ = 0;   // of the running step
    std::vector<request> next_uses_;  // [pages] next request after the last one
    moorage::page_lists lists_;       // per pool, pages out of sight, least recently used first
    moorage::page_heaps<eviction_key> heaps_;  // per pool, pages in sight, furthest request on top
    std::vector<uint32_t> set_aside_;          // pages taken off the heap during a call
};

}  // namespace

MOORAGE_POLICIES("org.moorage.belady", "1.0.0", belady)

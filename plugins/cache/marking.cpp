// marking.cpp - randomised marking: evicts a random expert not requested in the current phase.
//
// Source: Fiat et al. 1991, as compared in Cache Management for MoE LLMs. Requests and loads mark.
// If a miss finds no unmarked expert, a new phase begins. It clears all marks except those of the
// running step. Cost per call: O(experts of the step); O(1) per load, eviction and victim.

#include <moorage/moorage.hpp>

#include <vector>

namespace {

class marking {
public:
    static constexpr moorage::about about{
        .name = "marking",
        .summary = "evicts a random expert not requested in the current phase",
        .source = "Cache Management for MoE LLMs, baseline; Fiat et al. 1991",
        .flags = MOORAGE_POLICY_RANDOMISED,
    };

    explicit marking(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        const uint32_t count = limits.layers * limits.experts;
        pool_places_ = count / limits.pools;
        pages_.resize(count);
        places_.resize(count);
        pools_.resize(limits.pools);
        step_pages_.reserve(limits.experts);
        reset();
    }

    void reset() {
        pools_.assign(pools_.size(), {0, 0});
        places_.assign(places_.size(), moorage::none);
        step_pages_.clear();
    }

    void observe(const moorage::step &step) {
        const uint32_t pool = pools_.size() == 1 ? 0 : step.layer;
        step_pages_.clear();
        for (const uint32_t expert : step.distinct()) {
            const uint32_t page = step.page(expert);
            step_pages_.push_back(page);
            if (places_[page] != moorage::none) mark(page, pool);
        }
    }

    void on_load(uint32_t page, uint32_t, int32_t) {
        const uint32_t pool = pool_of(page);
        if (places_[page] == moorage::none) put(pool * pool_places_ + pools_[pool].used++, page);
        mark(page, pool);
    }

    void on_evict(uint32_t page, int32_t) {
        if (places_[page] == moorage::none) return;
        const uint32_t pool = pool_of(page), first = pool * pool_places_;
        extent &extent = pools_[pool];
        if (places_[page] - first < extent.marked) swap(places_[page], first + --extent.marked);
        put(places_[page], pages_[first + --extent.used]);
        places_[page] = moorage::none;
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        extent &extent = pools_[room.pool];
        const uint32_t first = room.pool * pool_places_;
        uint32_t end = extent.used;  // drawn pages are set aside behind it
        for (bool cleared = false; !victims.full();) {
            if (extent.marked == end) {
                if (cleared) return;
                cleared = true;
                begin_phase(room.pool);
                continue;
            }
            const uint32_t drawn = first + extent.marked + host_.random_below(end - extent.marked);
            const uint32_t page = pages_[drawn];
            swap(drawn, first + --end);
            if (moorage::evictable(state_[page])) victims.push(page);
        }
    }

private:
    struct extent {
        uint32_t used, marked;
    };
    uint32_t pool_of(uint32_t page) const { return pools_.size() == 1 ? 0 : page / pool_places_; }
    void put(uint32_t place, uint32_t page) {
        pages_[place] = page;
        places_[page] = place;
    }
    void swap(uint32_t a, uint32_t b) {
        const uint32_t page = pages_[a];
        put(a, pages_[b]);
        put(b, page);
    }
    void mark(uint32_t page, uint32_t pool) {
        const uint32_t first = pool * pool_places_;
        extent &extent = pools_[pool];
        if (places_[page] - first >= extent.marked) swap(places_[page], first + extent.marked++);
    }
    // Keeps the marks of the running step's pages: they are pinned. After the step none is pinned.
    void begin_phase(uint32_t pool) {
        pools_[pool].marked = 0;
        for (const uint32_t page : step_pages_)
            if (places_[page] != moorage::none && (state_[page] & MOORAGE_STATE_PINNED) &&
                pool_of(page) == pool)
                mark(page, pool);
    }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t pool_places_ = 1;              // places of a pool
    std::vector<uint32_t> pages_, places_;  // per pool: marked pages, then unmarked; place of each
    std::vector<extent> pools_;
    std::vector<uint32_t> step_pages_;  // pages of the running step
};

}  // namespace

MOORAGE_POLICIES("org.moorage.marking", "1.0.0", marking)

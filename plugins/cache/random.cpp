// random.cpp - uniformly random: evicts any expert that may go, all equally likely.
//
// Source: textbook baseline. Random numbers come from the host's service.
// Cost per call: O(1) per load, eviction and victim, plus drawn pinned pages.

#include <moorage/moorage.hpp>

#include <vector>

namespace {

class random_choice {
public:
    static constexpr moorage::about about{
        .name = "random",
        .summary = "evicts a uniformly random expert",
        .source = "textbook baseline",
        .flags = MOORAGE_POLICY_RANDOMISED,
    };

    explicit random_choice(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        const uint32_t count = limits.layers * limits.experts;
        pool_places_ = count / limits.pools;
        pages_.resize(count);
        places_.resize(count);
        used_.resize(limits.pools);
        reset();
    }

    void reset() {
        used_.assign(used_.size(), 0);
        places_.assign(places_.size(), moorage::none);
    }

    void on_load(uint32_t page, uint32_t, int32_t) {
        if (places_[page] != moorage::none) return;
        const uint32_t pool = pool_of(page);
        put(pool * pool_places_ + used_[pool]++, page);
    }

    void on_evict(uint32_t page, int32_t) {
        if (places_[page] == moorage::none) return;
        const uint32_t pool = pool_of(page);
        put(places_[page], pages_[pool * pool_places_ + --used_[pool]]);
        places_[page] = moorage::none;
    }

    // The first places of a random permutation, made only as far as needed.
    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t first = room.pool * pool_places_;
        for (uint32_t i = 0; i < used_[room.pool] && !victims.full(); ++i) {
            const uint32_t drawn = i + host_.random_below(used_[room.pool] - i);
            const uint32_t page = pages_[first + drawn];
            put(first + drawn, pages_[first + i]);
            put(first + i, page);
            if (moorage::evictable(state_[page])) victims.push(page);
        }
    }

private:
    uint32_t pool_of(uint32_t page) const { return used_.size() == 1 ? 0 : page / pool_places_; }
    void put(uint32_t place, uint32_t page) {
        pages_[place] = page;
        places_[page] = place;
    }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t pool_places_ = 1;              // places of a pool
    std::vector<uint32_t> pages_, places_;  // [pools * pool_places_] pages in slots; place of each
    std::vector<uint32_t> used_;            // [pools]
};

}  // namespace

MOORAGE_POLICIES("org.moorage.random", "1.0.0", random_choice)

// first_fit.hpp - a cache policy that keeps every rule. The bad ones derive from it and break one.
#pragma once

#include <moorage/moorage.hpp>

#include <cstdint>

class first_fit {
public:
    explicit first_fit(const moorage::setup &setup) : host_(setup.host) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pages_ = limits.layers * limits.experts;
        shared_ = limits.pools == 1;
        state_ = host_.residency()->host_state;
    }
    void reset() {}
    void observe(const moorage::step &) {}
    // The pages with the smallest numbers.
    void victims(const moorage::room &room, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_ && !victims.full(); ++page)
            if (in_pool(page, room) && moorage::evictable(state_[page])) victims.push(page);
    }

protected:
    bool in_pool(uint32_t page, const moorage::room &room) const {
        return shared_ || page / experts_ == room.pool;
    }
    // The same from the highest number down: other advice that is also sound.
    void victims_from_top(const moorage::room &room, moorage::pages &victims) {
        for (uint32_t page = pages_; page-- > 0 && !victims.full();)
            if (in_pool(page, room) && moorage::evictable(state_[page])) victims.push(page);
    }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pages_ = 0;
    bool shared_ = true;
};

// drive_cache.cpp - the cache's part of a step: victims, admissions, loads, pools that shrink.
#include <algorithm>

#include "core/base/text.h"
#include "tools/moorage/check/drive.h"

namespace moorage::check {

using core::format;

namespace {

constexpr uint32_t in_slot = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT;

}  // namespace

bool driver::is_evictable(uint32_t page, uint32_t pool) const {
    const uint32_t state =
        world_.state.capacity() > page ? const_cast<world &>(world_).state[page] : 0;
    return (state & in_slot) != 0 &&
           (state & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED)) == 0 &&
           world_.pool_of_page(page) == pool;
}

// Reports any fault of a victim; true if there is none.
bool driver::check_victim(uint32_t page, uint32_t pool) {
    if (page >= world_.page_count()) {
        blame(fault::range,
              format("victim {} is no page, of {} there are", page, world_.page_count()));
        return false;
    }
    const uint32_t state = world_.state[page];
    const std::string name = format("victim {} (layer {} expert {})", page,
                                    page / world_.options.experts, page % world_.options.experts);
    if ((state & in_slot) == 0)
        blame(fault::range, name + " is not in the cache");
    else if (state & MOORAGE_STATE_PINNED)
        blame(fault::pinned, name + " is pinned by the running step");
    else if (state & MOORAGE_STATE_BUFFERED)
        blame(fault::range, name + " is in the transfer buffer");
    else if (world_.pool_of_page(page) != pool)
        blame(fault::range, format("{} is not of pool {}", name, pool));
    else if (std::find(valid_victims_.begin(), valid_victims_.end(), page) != valid_victims_.end())
        blame(fault::range, name + " is named twice");
    else
        return true;
    return false;
}

// Asks for `count` victims, into valid_victims_. Wrong ones are replaced by the first allowed ones.
void driver::find_victims(uint32_t pool, uint32_t layer, uint32_t count, int32_t cause) {
    const moorage_room room{sizeof(room), 0, pool, layer, count, cause};
    uint32_t *victims = victims_.last(count), got = 0;
    std::fill_n(victims, count, MOORAGE_NONE);
    call(core::entry_point::cache_victims,
         [&] { got = policy_.cache->victims(policy_.plugin, &room, victims); });
    record_decision(got);
    if (got > count) {
        blame(fault::capacity, format("{} victims were named, {} were asked for", got, count));
        got = count;
    }
    valid_victims_.clear();
    for (uint32_t i = 0; i < got; ++i) {
        record_decision(victims[i]);
        if (check_victim(victims[i], pool)) valid_victims_.push_back(victims[i]);
    }
    const bool complete = got == count;
    for (uint32_t page = 0; page < world_.page_count() && valid_victims_.size() < count; ++page) {
        const auto end = valid_victims_.end();
        if (!is_evictable(page, pool) || std::find(valid_victims_.begin(), end, page) != end)
            continue;
        if (cause != MOORAGE_BUDGET && is_held(page)) continue;
        if (!complete)
            blame(fault::incomplete,
                  format("{} of {} victims were named although page {} may go", got, count, page));
        valid_victims_.push_back(page);
    }
}

void driver::load_missing() {
    const uint32_t first = step_.layer * world_.options.experts,
                   pool = world_.pool_of_layer(step_.layer);
    misses_.clear();
    for (uint32_t i = 0; i < step_.distinct_count; ++i) {
        const uint32_t page = first + step_.host_distinct[i];
        if ((world_.state[page] & in_slot) == 0) misses_.push_back(page);
    }
    const uint32_t slots = world_.slots[pool], used = world_.used[pool];
    uint32_t spare = slots > used ? slots - used : 0;
    const auto missing = static_cast<uint32_t>(misses_.size());
    valid_victims_.clear();
    if (const uint32_t ask = std::min(missing > spare ? missing - spare : 0, slots); ask > 0)
        find_victims(pool, step_.layer, ask, MOORAGE_DEMAND);
    size_t next = 0;
    for (const uint32_t page : misses_) {
        const bool full = spare == 0;
        if (full && next == valid_victims_.size()) continue;  // every slot is pinned: not cached
        const uint32_t victim = full ? valid_victims_[next++] : MOORAGE_NONE;
        const uint32_t used_before = world_.used[pool];
        load(page, victim, full);
        if (!full && world_.used[pool] != used_before) --spare;
    }
}

void driver::load(uint32_t page, uint32_t victim, bool full) {
    const moorage_cache &cache = *policy_.cache;
    uint32_t admitted = 1;
    if (cache.admit) {
        const moorage_admission ask{sizeof(ask), 0, page, victim, MOORAGE_WHOLE, MOORAGE_DEMAND};
        call(core::entry_point::cache_admit, [&] { admitted = cache.admit(policy_.plugin, &ask); });
        record_decision(admitted);
    }
    if (!admitted) return;
    if (full) {
        ++world_.used[world_.pool_of_page(page)];
        evict(victim, MOORAGE_DEMAND);
    } else {
        ++world_.used[world_.pool_of_page(page)];
    }
    uint32_t &state = world_.state[page];
    if (state & MOORAGE_STATE_BUFFERED) --buffered_pages_;
    state &= ~MOORAGE_STATE_BUFFERED;
    if (world_.options.disturb && draw_.one_in(3)) {
        state |= MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
        in_flight_.push_back(page);
    } else {
        state |= MOORAGE_WHOLE;
    }
    // Some arrive in the second version, so a policy that reads bits must read the right ones.
    if (world_.options.disturb && page % 3 == 0) state |= 1u << MOORAGE_STATE_VERSION_SHIFT;
    if (cache.on_load)
        call(core::entry_point::cache_on_load,
             [&] { cache.on_load(policy_.plugin, page, MOORAGE_WHOLE, MOORAGE_DEMAND); });
}

// Asks the policy for the first content of every pool.
void driver::fill_pools() {
    if (!policy_.cache || !policy_.cache->fill) return;
    const auto pools = static_cast<uint32_t>(world_.slots.capacity());
    for (uint32_t pool = 0; pool < pools; ++pool) {
        const uint32_t slots = world_.slots[pool], used = world_.used[pool];
        const uint32_t free = slots > used ? slots - used : 0;
        if (free == 0) continue;
        const uint32_t layer = world_.options.per_layer ? pool : MOORAGE_NONE;
        const moorage_room room{sizeof(room), 0, pool, layer, free, MOORAGE_BUDGET};
        uint32_t *pages = victims_.last(free), got = 0;
        std::fill_n(pages, free, MOORAGE_NONE);
        control(core::entry_point::cache_fill,
                [&] { got = policy_.cache->fill(policy_.plugin, &room, pages); });
        record_decision(got);
        if (got > free)
            blame(fault::capacity, format("{} pages were named to fill {} slots", got, free));
        for (uint32_t i = 0; i < std::min(got, free); ++i) {
            const uint32_t page = pages[i];
            record_decision(page);
            if (page >= world_.page_count() || world_.pool_of_page(page) != pool) {
                blame(fault::range, format("fill names page {} for pool {}, of {} pages there are",
                                           page, pool, world_.page_count()));
                continue;
            }
            if (world_.state[page] != 0) continue;
            world_.state[page] = MOORAGE_WHOLE;
            ++world_.used[pool];
            if (policy_.cache->on_load)
                call(core::entry_point::cache_on_load, [&] {
                    policy_.cache->on_load(policy_.plugin, page, MOORAGE_WHOLE, MOORAGE_BUDGET);
                });
        }
    }
}

// Between tokens a pool loses a slot or gets it back, as if a budget were applied.
void driver::resize_pools() {
    if (!policy_.cache || !draw_.one_in(3)) return;
    const uint32_t pool = draw_.below(static_cast<uint32_t>(world_.slots.capacity()));
    uint32_t &slots = world_.slots[pool];
    const uint32_t full = world_.options.per_layer ? world_.options.slots / world_.options.layers
                                                   : world_.options.slots;
    if (slots < full) {
        ++slots;
        return;
    }
    if (slots < 2) return;
    --slots;
    while (world_.used[pool] > slots) {
        find_victims(pool, world_.options.per_layer ? pool : 0, 1, MOORAGE_BUDGET);
        if (valid_victims_.empty()) return;
        evict(valid_victims_[0], MOORAGE_BUDGET);
    }
}

// The page loses its slot.
void driver::evict(uint32_t page, int32_t cause) {
    world_.state[page] &= ~(in_slot | MOORAGE_STATE_VERSION);
    --world_.used[world_.pool_of_page(page)];
    if (policy_.cache->on_evict)
        call(core::entry_point::cache_on_evict,
             [&] { policy_.cache->on_evict(policy_.plugin, page, cause); });
}

bool driver::is_held(uint32_t page) {
    if (!policy_.cache->hold) return false;
    uint32_t is_held_back = 0;
    call(core::entry_point::cache_hold,
         [&] { is_held_back = policy_.cache->hold(policy_.plugin, page); });
    record_decision(is_held_back);
    return is_held_back != 0;
}

// The pages that the policy names are evicted, though nobody needs their slots.
void driver::give_up() {
    const uint32_t pool = world_.pool_of_layer(step_.layer), used = world_.used[pool];
    if (used == 0) return;
    const moorage_room room{sizeof(room), 0, pool, step_.layer, used, MOORAGE_ADVICE};
    uint32_t *pages = victims_.last(used), got = 0;
    std::fill_n(pages, used, MOORAGE_NONE);
    call(core::entry_point::cache_give_up,
         [&] { got = policy_.cache->give_up(policy_.plugin, &room, pages); });
    record_decision(got);
    if (got > used)
        blame(fault::capacity, format("{} pages were given up, {} are there", got, used));
    valid_victims_.clear();
    for (uint32_t i = 0; i < std::min(got, used); ++i) {
        record_decision(pages[i]);
        if (check_victim(pages[i], pool)) valid_victims_.push_back(pages[i]);
    }
    for (const uint32_t page : valid_victims_) evict(page, MOORAGE_ADVICE);
}

}  // namespace moorage::check

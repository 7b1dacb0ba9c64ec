// cache_stage.cpp - asks the policy for room, checks its advice, and keeps the true state.
#include "core/cache/cache_stage.h"

#include <algorithm>
#include <string>

#include "core/base/invariant.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

std::string page_name(uint32_t page, uint32_t experts) {
    return format("victim {} (layer {} expert {})", page, page / experts, page % experts);
}

// Whether `page` can be a victim of `pool`, beside those named `earlier_victims` it.
bool can_be_victim(const ledger &ledger, uint32_t pool, uint32_t page,
                   std::span<const uint32_t> earlier_victims) {
    return page < ledger.page_count() && ledger.pool_of_page(page) == pool &&
           ledger.is_evictable(page) &&
           std::find(earlier_victims.begin(), earlier_victims.end(), page) == earlier_victims.end();
}

// Why it cannot.
std::string victim_error(const ledger &ledger, uint32_t pool, uint32_t page,
                         std::span<const uint32_t> earlier_victims) {
    if (page >= ledger.page_count())
        return format("victim {} is out of range: there are {} pages", page, ledger.page_count());
    const bool in_other_pool = ledger.pool_of_page(page) != pool;
    const bool named_twice =
        std::find(earlier_victims.begin(), earlier_victims.end(), page) != earlier_victims.end();
    const std::string name = page_name(page, ledger.experts());
    if (in_other_pool)
        return format("{} is of pool {}, room was asked in pool {}", name,
                      ledger.pool_of_page(page), pool);
    if (named_twice) return format("{} is named twice", name);
    const uint32_t state = ledger.state(page);
    if (state & MOORAGE_STATE_PINNED) return format("{} is pinned", name);
    if (state & MOORAGE_STATE_BUFFERED)
        return format("{} is in the transfer buffer, not in a slot", name);
    return format("{} is not resident", name);
}

}  // namespace

cache_stage::cache_stage(instance &policy, ledger &ledger, fault_log &faults)
    : policy_(policy), ledger_(ledger), faults_(faults) {
    MOORAGE_INVARIANT(policy.cache != nullptr);
    victims_.reserve(ledger.page_count());
}

// The evictable page of the pool with the smallest number that `taken` does not hold. `spares`: nor
// the policy.
uint32_t cache_stage::first_evictable(uint32_t pool, std::span<const uint32_t> taken,
                                      bool spares) const {
    const bool shared = ledger_.pools() == 1;
    const uint32_t begin = shared ? 0 : pool * ledger_.experts();
    const uint32_t end = shared ? ledger_.page_count() : begin + ledger_.experts();
    for (uint32_t page = begin; page < end; ++page)
        if (ledger_.is_evictable(page) &&
            std::find(taken.begin(), taken.end(), page) == taken.end() &&
            !(spares && policy_holds(page)))
            return page;
    return MOORAGE_NONE;
}

bool cache_stage::find_victims(uint32_t pool, uint32_t layer, uint32_t count, int32_t cause,
                               bool shrinks) {
    MOORAGE_INVARIANT(count > 0 && count <= victims_.capacity());
    const moorage_room room{sizeof(room), 0, pool, layer, count, cause};
    victims_.assign(count, MOORAGE_NONE);
    const uint32_t returned_count =
        policy_.call(entry_point::cache_victims, policy_.cache->victims, &room, victims_.data());
    if (returned_count > count &&
        !faults_.report(policy_.name(),
                        format("{} victims given where {} were asked", returned_count, count)))
        return false;

    // Good ones first, so that no replacement takes a page that is named further on.
    const uint32_t named_count = std::min(returned_count, count);
    uint32_t good_count = 0;
    for (uint32_t i = 0; i < named_count; ++i) {
        const uint32_t page = victims_[i];
        if (can_be_victim(ledger_, pool, page, {victims_.data(), i})) {
            ++good_count;
            continue;
        }
        const std::string error = victim_error(ledger_, pool, page, {victims_.data(), i});
        victims_[i] = MOORAGE_NONE;
        if (!faults_.report(policy_.name(), error)) return false;
    }
    if (good_count == count) return true;
    bool reported = false;  // that there were too few: one fault a call, however many lack
    for (uint32_t i = 0; i < count; ++i) {
        if (victims_[i] != MOORAGE_NONE && i < named_count) continue;
        uint32_t page = first_evictable(pool, victims_, /*spares=*/true);
        const bool available = page != MOORAGE_NONE;
        if (!available && shrinks) page = first_evictable(pool, victims_, /*spares=*/false);
        if (page == MOORAGE_NONE) break;
        if (available && i >= named_count && !reported) {
            reported = true;
            if (!faults_.report(policy_.name(),
                                format("{} of {} victims given though {} may go", named_count,
                                       count, page_name(page, ledger_.experts()))))
                return false;
        }
        victims_[i] = page;
    }
    std::erase(victims_, MOORAGE_NONE);
    return true;
}

// For a split expert, a slot holds the top segment.
uint32_t cache_stage::segments_of(uint32_t layer) const {
    return ledger_.split_shares()[layer] < 1 ? first_segment : MOORAGE_WHOLE;
}

bool cache_stage::load(std::span<const uint32_t> pages, int32_t cause, bool at_once,
                       std::span<placement_in_cache> placements) {
    MOORAGE_INVARIANT(placements.size() == pages.size());
    if (pages.empty()) return true;
    const uint32_t layer = pages.front() / ledger_.experts(), pool = ledger_.pool_of_layer(layer);
    const auto missing = static_cast<uint32_t>(pages.size());
    uint32_t free_slots = ledger_.free_slots(pool);
    const uint32_t victim_count =
        std::min(missing > free_slots ? missing - free_slots : 0, ledger_.slots(pool));
    victims_.clear();
    if (victim_count > 0 && !find_victims(pool, layer, victim_count, cause, /*shrinks=*/false))
        return false;

    const moorage_cache &cache = *policy_.cache;
    const uint32_t segments = segments_of(layer);
    size_t next_victim = 0;
    for (size_t i = 0; i < pages.size(); ++i) {
        const uint32_t page = pages[i];
        placements[i] = {page, MOORAGE_NONE, false};
        const bool pool_full = free_slots == 0;
        if (pool_full && next_victim == victims_.size()) continue;
        const uint32_t victim = pool_full ? victims_[next_victim++] : MOORAGE_NONE;
        const moorage_admission admission{sizeof(admission), 0, page, victim, segments, cause};
        if (cache.admit != nullptr &&
            policy_.call(entry_point::cache_admit, cache.admit, &admission) == 0) {
            ++refused_;
            continue;
        }
        if (pool_full) {
            ledger_.replace(victim);
            if (cache.on_evict != nullptr)
                policy_.call(entry_point::cache_on_evict, cache.on_evict, victim, cause);
        } else {
            --free_slots;
            ledger_.admit(page);
        }
        if (at_once) ledger_.land(page, MOORAGE_WHOLE);
        if (cache.on_load != nullptr)
            policy_.call(entry_point::cache_on_load, cache.on_load, page, segments, cause);
        placements[i] = {page, victim, true};
    }
    return true;
}

void cache_stage::evict_all(std::vector<uint32_t> &evicted) {
    for (uint32_t page = 0; page < ledger_.page_count(); ++page) {
        if (!ledger_.is_evictable(page)) continue;
        evict(page, MOORAGE_BUDGET);
        evicted.push_back(page);
    }
}

void cache_stage::evict(uint32_t page, int32_t cause) {
    ledger_.evict(page);
    if (policy_.cache->on_evict != nullptr)
        policy_.call(entry_point::cache_on_evict, policy_.cache->on_evict, page, cause);
}

bool cache_stage::give_up(uint32_t layer, std::vector<uint32_t> &evicted) {
    const uint32_t pool = ledger_.pool_of_layer(layer), used = ledger_.used_slots(pool);
    if (used == 0) return true;
    const moorage_room room{sizeof(room), 0, pool, layer, used, MOORAGE_ADVICE};
    victims_.assign(used, MOORAGE_NONE);
    const uint32_t returned_count =
        policy_.call(entry_point::cache_give_up, policy_.cache->give_up, &room, victims_.data());
    for (uint32_t i = 0; i < std::min(returned_count, used); ++i) {
        const uint32_t page = victims_[i];
        if (can_be_victim(ledger_, pool, page, {})) {
            evict(page, MOORAGE_ADVICE);
            evicted.push_back(page);
        } else if (!faults_.report(policy_.name(), victim_error(ledger_, pool, page, {}))) {
            return false;
        }
    }
    return true;
}

void cache_stage::put(uint32_t page) {
    ledger_.admit(page);
    ledger_.land(page, MOORAGE_WHOLE);
    if (policy_.cache->on_load != nullptr)
        policy_.call(entry_point::cache_on_load, policy_.cache->on_load, page, MOORAGE_WHOLE,
                     MOORAGE_MIGRATION);
}

void cache_stage::take(uint32_t page) { evict(page, MOORAGE_MIGRATION); }

bool cache_stage::fill(uint32_t pool, std::vector<uint32_t> &loaded) {
    const moorage_cache &cache = *policy_.cache;
    const uint32_t free_slots = ledger_.free_slots(pool);
    if (cache.fill == nullptr || free_slots == 0) return true;
    // With several devices, the policy does not know which device owns a page. It is therefore
    // asked for more pages than there are slots. Pages of other devices are passed over.
    const uint32_t pages = ledger_.pools() == 1 ? ledger_.page_count() : ledger_.experts();
    const uint32_t asked_count = ledger_.owns_all() ? free_slots : std::max(free_slots, pages);
    const moorage_room room{sizeof(room), 0,
                            pool,         ledger_.pools() == 1 ? MOORAGE_NONE : pool,
                            asked_count,  MOORAGE_BUDGET};
    victims_.assign(asked_count, MOORAGE_NONE);
    const uint32_t returned_count =
        policy_.call(entry_point::cache_fill, cache.fill, &room, victims_.data());
    std::string error;
    if (returned_count > asked_count)
        error = format("{} pages given to fill {} slots", returned_count, asked_count);
    if (!error.empty() && !faults_.report(policy_.name(), error)) return false;
    for (uint32_t i = 0; i < std::min(returned_count, asked_count) && ledger_.free_slots(pool) != 0;
         ++i) {
        const uint32_t page = victims_[i];
        error.clear();
        if (page >= ledger_.page_count())
            error = format("fills a slot with page {}; there are {}", page, ledger_.page_count());
        else if (ledger_.pool_of_page(page) != pool)
            error = format("fills a slot of pool {} with page {} of pool {}", pool, page,
                           ledger_.pool_of_page(page));
        if (!error.empty()) {
            if (!faults_.report(policy_.name(), error)) return false;
            continue;
        }
        if (ledger_.state(page) != 0 || !ledger_.owns(page))
            continue;  // there already, or elsewhere
        const uint32_t segments = segments_of(page / ledger_.experts());
        ledger_.admit(page);
        ledger_.expect_kept(page, static_cast<uint8_t>(segments));
        if (cache.on_load != nullptr)
            policy_.call(entry_point::cache_on_load, cache.on_load, page, segments, MOORAGE_BUDGET);
        loaded.push_back(page);
    }
    return true;
}

bool cache_stage::shrink(uint32_t pool, std::vector<uint32_t> &evicted) {
    const uint32_t layer = ledger_.pools() == 1 ? 0 : pool;
    while (ledger_.used_slots(pool) > ledger_.slots(pool)) {
        // A room asks for no more than the pool has slots, so a deep cut takes several rounds.
        const uint32_t surplus = ledger_.used_slots(pool) - ledger_.slots(pool);
        const uint32_t victim_count = std::min(surplus, std::max(ledger_.slots(pool), 1u));
        if (!find_victims(pool, layer, victim_count, MOORAGE_BUDGET, /*shrinks=*/true))
            return false;
        if (victims_.empty()) return true;
        for (const uint32_t page : victims_) {
            evict(page, MOORAGE_BUDGET);
            evicted.push_back(page);
        }
    }
    return true;
}

}  // namespace moorage::core

// cache_stage.cpp - asks the policy for room, checks its advice, and keeps the true state.
#include "core/cache/cache_stage.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/text.h"

namespace moorage::core {

namespace {

std::string page_name(uint32_t page, uint32_t experts) {
    return format("victim {} (layer {} expert {})", page, page / experts, page % experts);
}

// Whether `page` can be a victim of `pool`, beside those named `before` it.
bool may_go(const ledger &truth, uint32_t pool, uint32_t page, std::span<const uint32_t> before) {
    return page < truth.page_count() && truth.pool_of_page(page) == pool && truth.evictable(page) &&
           std::find(before.begin(), before.end(), page) == before.end();
}

// Why it cannot.
std::string objection(const ledger &truth, uint32_t pool, uint32_t page,
                      std::span<const uint32_t> before) {
    if (page >= truth.page_count())
        return format("victim {} is out of range: there are {} pages", page, truth.page_count());
    const bool elsewhere = truth.pool_of_page(page) != pool;
    const bool twice = std::find(before.begin(), before.end(), page) != before.end();
    const std::string name = page_name(page, truth.experts());
    if (elsewhere)
        return format("{} is of pool {}, room was asked in pool {}", name, truth.pool_of_page(page),
                      pool);
    if (twice) return format("{} is named twice", name);
    const uint32_t state = truth.state(page);
    if (state & MOORAGE_STATE_PINNED) return format("{} is pinned", name);
    if (state & MOORAGE_STATE_BUFFERED)
        return format("{} is in the transfer buffer, not in a slot", name);
    return format("{} is not resident", name);
}

}  // namespace

cache_stage::cache_stage(instance &policy, ledger &truth, fault_log &faults)
    : policy_(policy), truth_(truth), faults_(faults) {
    assert(policy.cache != nullptr);
    victims_.reserve(truth.page_count());
}

// The evictable page of the pool with the smallest number that `taken` does not hold. `spares`: nor
// the policy.
uint32_t cache_stage::first_evictable(uint32_t pool, std::span<const uint32_t> taken,
                                      bool spares) const {
    const bool shared = truth_.pools() == 1;
    const uint32_t begin = shared ? 0 : pool * truth_.experts();
    const uint32_t end = shared ? truth_.page_count() : begin + truth_.experts();
    for (uint32_t page = begin; page < end; ++page)
        if (truth_.evictable(page) && std::find(taken.begin(), taken.end(), page) == taken.end() &&
            !(spares && held(page)))
            return page;
    return MOORAGE_NONE;
}

bool cache_stage::find_victims(uint32_t pool, uint32_t layer, uint32_t count, int32_t cause,
                               bool shrinks) {
    assert(count > 0 && count <= victims_.capacity());
    const moorage_room room{sizeof(room), 0, pool, layer, count, cause};
    victims_.assign(count, MOORAGE_NONE);
    const uint32_t given =
        policy_.call(entry_point::victims, policy_.cache->victims, &room, victims_.data());
    if (given > count &&
        !faults_.report(policy_.name(),
                        format("{} victims given where {} were asked", given, count)))
        return false;

    // Good ones first, so that no replacement takes a page that is named further on.
    const uint32_t named = std::min(given, count);
    uint32_t good = 0;
    for (uint32_t i = 0; i < named; ++i) {
        const uint32_t page = victims_[i];
        if (may_go(truth_, pool, page, {victims_.data(), i})) {
            ++good;
            continue;
        }
        const std::string why = objection(truth_, pool, page, {victims_.data(), i});
        victims_[i] = MOORAGE_NONE;
        if (!faults_.report(policy_.name(), why)) return false;
    }
    if (good == count) return true;
    bool told = false;  // that there were too few: one fault a call, however many lack
    for (uint32_t i = 0; i < count; ++i) {
        if (victims_[i] != MOORAGE_NONE && i < named) continue;
        uint32_t page = first_evictable(pool, victims_, /*spares=*/true);
        const bool owed = page != MOORAGE_NONE;
        if (!owed && shrinks) page = first_evictable(pool, victims_, /*spares=*/false);
        if (page == MOORAGE_NONE) break;
        if (owed && i >= named && !told) {
            told = true;
            if (!faults_.report(policy_.name(),
                                format("{} of {} victims given though {} may go", named, count,
                                       page_name(page, truth_.experts()))))
                return false;
        }
        victims_[i] = page;
    }
    std::erase(victims_, MOORAGE_NONE);
    return true;
}

// For a split expert, a slot holds the top segment.
uint32_t cache_stage::segments_of(uint32_t layer) const {
    return truth_.splits()[layer] < 1 ? first_segment : MOORAGE_WHOLE;
}

bool cache_stage::load(std::span<const uint32_t> pages, int32_t cause, bool at_once,
                       std::span<placement_in_cache> out) {
    assert(out.size() == pages.size());
    if (pages.empty()) return true;
    const uint32_t layer = pages.front() / truth_.experts(), pool = truth_.pool_of_layer(layer);
    const auto missing = static_cast<uint32_t>(pages.size());
    uint32_t spare = truth_.free(pool);
    const uint32_t ask = std::min(missing > spare ? missing - spare : 0, truth_.slots(pool));
    victims_.clear();
    if (ask > 0 && !find_victims(pool, layer, ask, cause, /*shrinks=*/false)) return false;

    const moorage_cache &cache = *policy_.cache;
    const uint32_t segments = segments_of(layer);
    size_t next = 0;
    for (size_t i = 0; i < pages.size(); ++i) {
        const uint32_t page = pages[i];
        out[i] = {page, MOORAGE_NONE, false};
        const bool full = spare == 0;
        if (full && next == victims_.size()) continue;
        const uint32_t victim = full ? victims_[next++] : MOORAGE_NONE;
        const moorage_admission asked{sizeof(asked), 0, page, victim, segments, cause};
        if (cache.admit != nullptr && policy_.call(entry_point::admit, cache.admit, &asked) == 0) {
            ++refused_;
            continue;
        }
        if (full) {
            truth_.replace(victim);
            if (cache.on_evict != nullptr)
                policy_.call(entry_point::on_evict, cache.on_evict, victim, cause);
        } else {
            --spare;
            truth_.admit(page);
        }
        if (at_once) truth_.land(page, MOORAGE_WHOLE);
        if (cache.on_load != nullptr)
            policy_.call(entry_point::on_load, cache.on_load, page, segments, cause);
        out[i] = {page, victim, true};
    }
    return true;
}

void cache_stage::empty(std::vector<uint32_t> &evicted) {
    for (uint32_t page = 0; page < truth_.page_count(); ++page) {
        if (!truth_.evictable(page)) continue;
        evict(page, MOORAGE_BUDGET);
        evicted.push_back(page);
    }
}

void cache_stage::evict(uint32_t page, int32_t cause) {
    truth_.evict(page);
    if (policy_.cache->on_evict != nullptr)
        policy_.call(entry_point::on_evict, policy_.cache->on_evict, page, cause);
}

bool cache_stage::give_up(uint32_t layer, std::vector<uint32_t> &evicted) {
    const uint32_t pool = truth_.pool_of_layer(layer), used = truth_.used(pool);
    if (used == 0) return true;
    const moorage_room room{sizeof(room), 0, pool, layer, used, MOORAGE_ADVICE};
    victims_.assign(used, MOORAGE_NONE);
    const uint32_t given =
        policy_.call(entry_point::give_up, policy_.cache->give_up, &room, victims_.data());
    for (uint32_t i = 0; i < std::min(given, used); ++i) {
        const uint32_t page = victims_[i];
        if (may_go(truth_, pool, page, {})) {
            evict(page, MOORAGE_ADVICE);
            evicted.push_back(page);
        } else if (!faults_.report(policy_.name(), objection(truth_, pool, page, {}))) {
            return false;
        }
    }
    return true;
}

void cache_stage::put(uint32_t page) {
    truth_.admit(page);
    truth_.land(page, MOORAGE_WHOLE);
    if (policy_.cache->on_load != nullptr)
        policy_.call(entry_point::on_load, policy_.cache->on_load, page, MOORAGE_WHOLE,
                     MOORAGE_MIGRATION);
}

void cache_stage::take(uint32_t page) { evict(page, MOORAGE_MIGRATION); }

bool cache_stage::fill(uint32_t pool, std::vector<uint32_t> &loaded) {
    const moorage_cache &cache = *policy_.cache;
    const uint32_t spare = truth_.free(pool);
    if (cache.fill == nullptr || spare == 0) return true;
    // With several devices, the policy does not know which device owns a page. It is therefore
    // asked for more pages than there are slots. Pages of other devices are passed over.
    const uint32_t pages = truth_.pools() == 1 ? truth_.page_count() : truth_.experts();
    const uint32_t asked = truth_.owns_all() ? spare : std::max(spare, pages);
    const moorage_room room{
        sizeof(room), 0, pool, truth_.pools() == 1 ? MOORAGE_NONE : pool, asked, MOORAGE_BUDGET};
    victims_.assign(asked, MOORAGE_NONE);
    const uint32_t given = policy_.call(entry_point::fill, cache.fill, &room, victims_.data());
    std::string why;
    if (given > asked) why = format("{} pages given to fill {} slots", given, asked);
    if (!why.empty() && !faults_.report(policy_.name(), why)) return false;
    for (uint32_t i = 0; i < std::min(given, asked) && truth_.free(pool) != 0; ++i) {
        const uint32_t page = victims_[i];
        why.clear();
        if (page >= truth_.page_count())
            why = format("fills a slot with page {}; there are {}", page, truth_.page_count());
        else if (truth_.pool_of_page(page) != pool)
            why = format("fills a slot of pool {} with page {} of pool {}", pool, page,
                         truth_.pool_of_page(page));
        if (!why.empty()) {
            if (!faults_.report(policy_.name(), why)) return false;
            continue;
        }
        if (truth_.state(page) != 0 || !truth_.owns(page)) continue;  // there already, or elsewhere
        const uint32_t segments = segments_of(page / truth_.experts());
        truth_.admit(page);
        truth_.expect_kept(page, static_cast<uint8_t>(segments));
        if (cache.on_load != nullptr)
            policy_.call(entry_point::on_load, cache.on_load, page, segments, MOORAGE_BUDGET);
        loaded.push_back(page);
    }
    return true;
}

bool cache_stage::shrink(uint32_t pool, std::vector<uint32_t> &evicted) {
    const uint32_t layer = truth_.pools() == 1 ? 0 : pool;
    while (truth_.used(pool) > truth_.slots(pool)) {
        // A room asks for no more than the pool has slots, so a deep cut takes several rounds.
        const uint32_t surplus = truth_.used(pool) - truth_.slots(pool);
        const uint32_t ask = std::min(surplus, std::max(truth_.slots(pool), 1u));
        if (!find_victims(pool, layer, ask, MOORAGE_BUDGET, /*shrinks=*/true)) return false;
        if (victims_.empty()) return true;
        for (const uint32_t page : victims_) {
            evict(page, MOORAGE_BUDGET);
            evicted.push_back(page);
        }
    }
    return true;
}

}  // namespace moorage::core

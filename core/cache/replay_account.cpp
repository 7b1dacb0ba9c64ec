// replay_account.cpp - follows the outcomes of a fast replay with the host's own copy of the cache.
#include "core/cache/replay_account.h"

#include <algorithm>

#include "moorage/cache.h"

#include "core/base/invariant.h"

namespace moorage::core {

namespace {

constexpr uint8_t resident = 1, pinned = 2;

}  // namespace

replay_account::replay_account(const ledger &ledger, replay_shape shape)
    : ledger_(ledger),
      shape_(shape),
      present_(size_t{ledger.page_count()} + 1, 0),
      used_(ledger.pools(), 0),
      layer_misses_(ledger.layers(), 0) {
    MOORAGE_INVARIANT(shape.width >= 1 && shape.width <= 64);
    // A smaller pool serves some requests uncached: the general loop knows about that.
    for (uint32_t pool = 0; pool < ledger.pools(); ++pool)
        roomy_ = roomy_ && ledger.slots(pool) >= shape.width;
    for (uint32_t round = 0; round < shape.rounds; ++round)
        for (uint32_t layer = 0; layer < ledger.layers(); ++layer)
            bases_.insert(bases_.end(), size_t{shape.repeats} * shape.width,
                          layer * ledger.experts());
    evictions_.resize(bases_.size());
}

bool replay_account::full() const {
    for (uint32_t pool = 0; pool < ledger_.pools(); ++pool)
        if (used_[pool] < ledger_.slots(pool)) return false;
    return true;
}

bool replay_account::follow(const uint32_t *experts, const uint32_t *outcomes, uint32_t tokens) {
    while (tokens > 0 && !full_) {
        if (!follow_token(experts, outcomes)) return false;
        full_ = roomy_ && full();
        experts += bases_.size();
        outcomes += bases_.size();
        --tokens;
    }
    if (tokens > 0 && !follow_full(experts, outcomes, tokens)) return false;
    return agrees_with_ledger();
}

bool replay_account::follow_full(const uint32_t *experts, const uint32_t *outcomes,
                                 uint32_t tokens) {
    const bool shared = ledger_.pools() == 1;
    switch (shape_.width) {  // usual ones, whose loops then have a known length
        case 1:
            return shared ? follow_full_of<true, 1>(experts, outcomes, tokens)
                          : follow_full_of<false, 1>(experts, outcomes, tokens);
        case 2:
            return shared ? follow_full_of<true, 2>(experts, outcomes, tokens)
                          : follow_full_of<false, 2>(experts, outcomes, tokens);
        case 4:
            return shared ? follow_full_of<true, 4>(experts, outcomes, tokens)
                          : follow_full_of<false, 4>(experts, outcomes, tokens);
        case 8:
            return shared ? follow_full_of<true, 8>(experts, outcomes, tokens)
                          : follow_full_of<false, 8>(experts, outcomes, tokens);
        default:
            return shared ? follow_full_of<true, 0>(experts, outcomes, tokens)
                          : follow_full_of<false, 0>(experts, outcomes, tokens);
    }
}

// Steps into full pools: a miss evicts and a hit does not, whatever the policy chose. An eviction
// from a wrong place is an eviction of a page that is not present. The last entry is never present,
// so clamping the address to it is the whole range check. If a step has several pages, they are
// pinned first. Only plainly resident pages may go.
template <bool Shared, uint32_t Width>
bool replay_account::follow_full_of(const uint32_t *experts, const uint32_t *outcomes,
                                    uint32_t tokens) {
    const uint32_t pages = ledger_.page_count(), per_layer = ledger_.experts();
    const uint32_t width = Width == 0 ? shape_.width : Width;
    const size_t count = bases_.size();
    const uint32_t *bases = bases_.data();
    uint32_t *evictions = evictions_.data();
    uint8_t *present = present_.data();
    uint32_t bad = 0;
    for (uint32_t token = 0; token < tokens; ++token, experts += count, outcomes += count) {
        for (size_t first = 0; first < count; first += width) {
            const uint32_t base = bases[first];
            const uint32_t *chosen = experts + first, *step_outcomes = outcomes + first;
            for (uint32_t i = 0; i < width; ++i) {
                uint8_t &entry = present[base + chosen[i]];
                bad |= entry ^ uint32_t { step_outcomes[i] == MOORAGE_REPLAY_KEPT };
                if (Width != 1) entry = resident | pinned;
            }
            for (uint32_t i = 0; i < width; ++i) {
                const bool in_pool =
                    Shared ? step_outcomes[i] < pages : step_outcomes[i] - base < per_layer;
                const uint32_t victim = in_pool ? step_outcomes[i] : pages;
                bad |= present[victim] ^ uint32_t { step_outcomes[i] != MOORAGE_REPLAY_KEPT };
                present[victim] = 0;
            }
            for (uint32_t i = 0; i < width; ++i) present[base + chosen[i]] = resident;
        }
        for (size_t i = 0; i < count; ++i) evictions[i] += outcomes[i] != MOORAGE_REPLAY_KEPT;
    }
    for (size_t i = 0; i < count; ++i) {
        layer_misses_[bases[i] / per_layer] += evictions[i];
        evictions[i] = 0;
    }
    return bad == 0;
}

bool replay_account::follow_token(const uint32_t *experts, const uint32_t *outcomes) {
    const uint32_t width = shape_.width;
    for (size_t i = 0; i < bases_.size(); i += width)
        if (!follow_step(bases_[i] / ledger_.experts(), experts + i, outcomes + i)) return false;
    return true;
}

bool replay_account::follow_step(uint32_t layer, const uint32_t *experts,
                                 const uint32_t *outcomes) {
    const uint32_t base = layer * ledger_.experts(), pool = ledger_.pool_of_layer(layer);
    const uint32_t pages = ledger_.page_count(), slots = ledger_.slots(pool), width = shape_.width;
    const uint32_t pool_first = ledger_.pools() == 1 ? 0 : base;
    const uint32_t pool_pages = ledger_.pools() == 1 ? pages : ledger_.experts();
    uint8_t *present = present_.data();

    uint64_t hit = 0;
    uint32_t held = 0;  // slots of the pool with pages of this step, which cannot go
    for (uint32_t i = 0; i < width; ++i) {
        uint8_t &entry = present[base + experts[i]];
        const uint32_t resident_bit = entry & resident;
        hit |= uint64_t{resident_bit} << i;
        held += resident_bit;
        entry |= pinned;
    }
    uint32_t used = used_[pool];
    uint32_t bad = 0, misses = 0;
    for (uint32_t i = 0; i < width; ++i) {
        const uint32_t outcome = outcomes[i];
        if (hit >> i & 1) {
            bad |= outcome != MOORAGE_REPLAY_KEPT;
            continue;
        }
        ++misses;
        if (outcome == MOORAGE_REPLAY_BYPASS) {
            bad |= used < slots || used > held;
            ++bypasses_;
            continue;
        }
        if (outcome == MOORAGE_REPLAY_KEPT) {
            bad |= used >= slots;
            ++used;
        } else {
            const uint32_t victim = outcome - pool_first < pool_pages ? outcome : pages;
            bad |= present[victim] != resident || used < slots;
            present[victim] = 0;
        }
        present[base + experts[i]] |= resident;
        ++held;
    }
    for (uint32_t i = 0; i < width; ++i) present[base + experts[i]] &= resident;
    used_[pool] = used;
    layer_misses_[layer] += misses;
    return bad == 0;
}

bool replay_account::agrees_with_ledger() const {
    const uint32_t *state = ledger_.view()->host_state;
    uint32_t differences = 0;
    for (uint32_t page = 0; page < ledger_.page_count(); ++page)
        differences |= state[page] ^ (present_[page] * uint32_t{MOORAGE_WHOLE});
    return differences == 0 && std::equal(used_.begin(), used_.end(), ledger_.view()->host_used);
}

}  // namespace moorage::core

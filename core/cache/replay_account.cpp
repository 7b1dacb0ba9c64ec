// replay_account.cpp - follows the outcomes of a fast replay with the host's own copy of the cache.
#include "core/cache/replay_account.h"

#include <algorithm>
#include <cassert>

#include "moorage/cache.h"

namespace moorage::core {

namespace {

constexpr uint8_t resident = 1, pinned = 2;

}  // namespace

replay_account::replay_account(const residency &truth, replay_shape shape, bool may_refuse)
    : truth_(truth),
      shape_(shape),
      may_refuse_(may_refuse),
      single_(shape.width == 1 && !may_refuse),
      present_(size_t{truth.page_count()} + 1, 0),
      used_(truth.pools(), 0),
      layer_misses_(truth.layers(), 0) {
    assert(shape.width >= 1 && shape.width <= 64);
    // A pool without slots serves everything uncached: the general loop knows about that.
    for (uint32_t pool = 0; pool < truth.pools(); ++pool) single_ = single_ && truth.slots(pool) > 0;
}

bool replay_account::follow(const uint32_t *experts, const uint32_t *outcomes, uint32_t tokens) {
    const bool good = !single_             ? follow_any(experts, outcomes, tokens)
                      : truth_.pools() == 1 ? follow_single<true>(experts, outcomes, tokens)
                                            : follow_single<false>(experts, outcomes, tokens);
    return good && agrees();
}

// Requests one by one, every miss cached. A page evicted from a wrong place shows up as one that is
// not present, so the address clamped to the last entry is all the range check that is needed.
template <bool Shared>
bool replay_account::follow_single(const uint32_t *experts, const uint32_t *outcomes, uint32_t tokens) {
    const uint32_t layers = truth_.layers(), per_layer = truth_.experts(), pages = truth_.page_count();
    const uint32_t repeats = shape_.repeats;
    uint8_t *present = present_.data();
    uint32_t used = used_[0], slots = truth_.slots(0), first = 0, size = pages;
    uint32_t bad = 0;
    for (uint32_t visit = 0; visit < tokens * shape_.rounds; ++visit) {
        for (uint32_t layer = 0; layer < layers; ++layer) {
            const uint32_t base = layer * per_layer;
            if constexpr (!Shared) {
                used = used_[layer], slots = truth_.slots(layer);
                first = base, size = per_layer;
            }
            uint32_t misses = 0;
            for (uint32_t i = 0; i < repeats; ++i, ++experts, ++outcomes) {
                const uint32_t page = base + *experts, outcome = *outcomes;
                const uint32_t evicted = outcome != MOORAGE_REPLAY_KEPT;
                const uint32_t from = outcome - first < size ? outcome : pages;
                const uint32_t hit = present[page];
                bad |= evicted & (hit | (present[from] ^ 1u) | (used < slots));
                present[from] = 0;
                present[page] = resident;
                misses += hit ^ 1u;
                used += (hit ^ 1u) & (evicted ^ 1u);
            }
            if constexpr (!Shared) {
                bad |= used > slots;
                used_[layer] = used;
            }
            layer_misses_[layer] += misses;
        }
    }
    if constexpr (Shared) {
        bad |= used > slots;
        used_[0] = used;
    }
    return bad == 0;
}

bool replay_account::follow_any(const uint32_t *experts, const uint32_t *outcomes, uint32_t tokens) {
    const uint64_t visits = uint64_t{tokens} * shape_.rounds;
    for (uint64_t visit = 0; visit < visits; ++visit) {
        for (uint32_t layer = 0; layer < truth_.layers(); ++layer) {
            for (uint32_t i = 0; i < shape_.repeats; ++i) {
                if (!follow_step(layer, experts, outcomes)) return false;
                experts += shape_.width;
                outcomes += shape_.width;
            }
        }
    }
    return true;
}

bool replay_account::follow_step(uint32_t layer, const uint32_t *experts, const uint32_t *outcomes) {
    const uint32_t base = layer * truth_.experts(), pool = truth_.pool_of_layer(layer);
    const uint32_t pages = truth_.page_count(), slots = truth_.slots(pool), width = shape_.width;
    const uint32_t first = truth_.pools() == 1 ? 0 : base;
    const uint32_t size = truth_.pools() == 1 ? pages : truth_.experts();
    uint8_t *present = present_.data();

    uint64_t hit = 0;
    uint32_t held = 0;  // slots of the pool with pages of this step, which cannot go
    for (uint32_t i = 0; i < width; ++i) {
        uint8_t &entry = present[base + experts[i]];
        const uint32_t there = entry & resident;
        hit |= uint64_t{there} << i;
        held += there;
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
            bad |= !may_refuse_ && (used < slots || used > held);
            ++bypasses_;
            continue;
        }
        if (outcome == MOORAGE_REPLAY_KEPT) {
            bad |= used >= slots;
            ++used;
        } else {
            const uint32_t from = outcome - first < size ? outcome : pages;
            bad |= present[from] != resident || used < slots;
            present[from] = 0;
        }
        present[base + experts[i]] |= resident;
        ++held;
    }
    for (uint32_t i = 0; i < width; ++i) present[base + experts[i]] &= resident;
    used_[pool] = used;
    layer_misses_[layer] += misses;
    return bad == 0;
}

bool replay_account::agrees() const {
    const uint8_t *state = truth_.view()->host_state;
    uint32_t differences = 0;
    for (uint32_t page = 0; page < truth_.page_count(); ++page)
        differences |= state[page] ^ (present_[page] * uint32_t{MOORAGE_WHOLE});
    return differences == 0 &&
           std::equal(used_.begin(), used_.end(), truth_.view()->host_used);
}

}  // namespace moorage::core

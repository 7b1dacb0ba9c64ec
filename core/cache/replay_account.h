// replay_account.h - the host's own account of a fast replay: checks outcomes, counts misses.
//
// Policies write the outcomes, so the host trusts none of them. It keeps its own copy of the
// cache's content and follows the outcomes with it. This costs about a nanosecond a request.
// Therefore the usual case (the cache full, with a slot for every request) has a loop without
// branches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/store/ledger.h"

namespace moorage::core {

// How the requests of a token are divided into steps (moorage_replay).
struct replay_shape {
    uint32_t rounds = 1, repeats = 1, width = 1;
};

class replay_account {
public:
    // Only for a policy that admits every page. With another policy, an uncached request may be a
    // refusal or a fault, and outcomes do not tell them apart.
    replay_account(const ledger &ledger, replay_shape shape);

    // Follows `tokens` tokens. Returns false if an outcome is impossible: a wrong claim of a hit or
    // a free slot; a victim that is absent, pinned, of another pool or not needed; an uncached
    // request although room could be made. Also if state words or counts of `ledger` are wrong.
    bool follow(const uint32_t *experts, const uint32_t *outcomes, uint32_t tokens);

    uint64_t bypasses() const { return bypasses_; }
    const std::vector<uint64_t> &layer_misses() const { return layer_misses_; }

private:
    bool follow_full(const uint32_t *, const uint32_t *, uint32_t tokens);
    template <bool Shared, uint32_t Width>
    bool follow_full_of(const uint32_t *, const uint32_t *, uint32_t tokens);
    bool follow_token(const uint32_t *experts, const uint32_t *outcomes);
    bool follow_step(uint32_t layer, const uint32_t *experts, const uint32_t *outcomes);
    bool full() const;
    bool agrees_with_ledger() const;

    const ledger &ledger_;
    const replay_shape shape_;
    bool roomy_ = true;                // every pool has a slot for each request of a step
    bool full_ = false;                // every pool is full; with roomy_ it stays so
    std::vector<uint8_t> present_;     // [pages + 1]: 1 resident, 2 pinned; the last is never there
    std::vector<uint32_t> used_;       // [pools]
    std::vector<uint32_t> bases_;      // [requests of a token] first page of the layer of each
    std::vector<uint32_t> evictions_;  // [requests of a token] evictions of a batch
    std::vector<uint64_t> layer_misses_;
    uint64_t bypasses_ = 0;
};

}  // namespace moorage::core

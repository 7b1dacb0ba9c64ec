// replay.hpp - the fast path of counting replays: a policy's own calls, inlined over many steps.
//
// It does exactly what the host does step by step (core/cache/replay.cpp). The host lends its
// residency words for the call, so a policy cannot tell the difference. The host checks every
// outcome.
//
// Optional, for speed: a cache policy without admit may have
//     auto single_requests();  // an object with uint32_t request(uint32_t page, uint32_t missed)
// This serves a full shared cache of two slots or more in which nothing is pinned. request does the
// work of observe, victims, on_evict and on_load, in this order. `missed` is 0 or 1. Do not branch
// on it: no processor can predict it. request returns the evicted page, or `page` if `page` did not
// miss. The object may hold the ends of lists and similar state. It is destroyed before any other
// call.
//     auto whole_steps();  // an object with void request(std::span<const uint32_t> pages,
//                          //     std::span<const uint32_t> missed, std::span<uint32_t> gone)
// This does the same for steps of several requests. `pages` are distinct and cannot be evicted
// during the step. The cache has room for all of them. gone[i] is the page whose place pages[i]
// takes; any value if missed[i] is 0.
#pragma once

#include "policy.hpp"

namespace moorage::detail {

template <class P>
class replayer {
public:
    replayer(P &policy, const moorage_replay &run, const moorage_residency &view)
        : policy_(policy), run_(run), view_(view), state_(run.host_state), used_(run.host_used) {}

    void operator()() {
        if (run_.width == 1)
            tokens<true>();
        else
            tokens<false>();
    }

private:
    template <bool Single>
    void tokens() {
        step step{};
        step.size = sizeof(moorage_step);
        step.phase = MOORAGE_DECODE;
        step.token_count = 1;
        step.top_k = step.distinct_count = Single ? 1 : run_.width;
        step.experts = view_.experts;
        step.index = run_.first_step;
        step.visit = run_.first_visit;
        static constexpr uint32_t stream = 0;
        step.host_streams = &stream;
        const uint32_t *experts = run_.host_experts;
        uint32_t *outcomes = run_.host_outcomes;
        for (uint32_t token = 0; token < run_.token_count; ++token) {
            if constexpr (Single && takes_singles)
                if (may_run_on()) return singles(token, experts, outcomes);
            if constexpr (!Single && takes_wholes)
                if (may_run_on()) return wholes(token, experts, outcomes);
            step.token = run_.first_token + token;
            step.host_requests = run_.host_requests + token;
            for (uint32_t round = 0; round < run_.rounds; ++round) {
                for (uint32_t layer = 0; layer < view_.layers; ++layer, ++step.visit) {
                    step.layer = layer;
                    for (uint32_t repeat = 0; repeat < run_.repeats; ++repeat, ++step.index) {
                        step.host_chosen = step.host_distinct = experts;
                        if constexpr (Single)
                            run_single(step, experts, outcomes);
                        else
                            run_several(step, experts, outcomes);
                        experts += step.top_k;
                        outcomes += step.top_k;
                    }
                }
            }
        }
    }

    static constexpr bool takes_singles = requires(P & p) { p.single_requests().request(0u, 0u); }
    &&!requires(P & p, const admission &a) { p.admit(a); };

    static constexpr bool takes_wholes = requires(P & p, std::span<uint32_t> values) {
        p.whole_steps().request(values, values, values);
    }
    &&!requires(P & p, const admission &a) { p.admit(a); };

    // A full shared cache stays full. So it is enough to look up here that all its pages are
    // plainly resident.
    bool may_run_on() const {
        const uint32_t slots = view_.host_slots[0];
        if (view_.pools != 1 || slots < 2 || slots < run_.width || used_[0] < slots) return false;
        uint32_t partial = 0;
        for (uint32_t page = 0; page < view_.layers * view_.experts; ++page)
            partial += state_[page] != 0 && state_[page] != MOORAGE_WHOLE;
        return partial == 0;
    }

    // All tokens from `token` on.
    void singles(uint32_t token, const uint32_t *experts, uint32_t *outcomes) {
        const uint32_t pages = view_.layers * view_.experts;
        auto turns = policy_.single_requests();
        for (uint32_t visits = (run_.token_count - token) * run_.rounds; visits > 0; --visits) {
            for (uint32_t first = 0; first < pages; first += view_.experts) {
                for (uint32_t repeat = 0; repeat < run_.repeats; ++repeat) {
                    const uint32_t page = first + *experts++;
                    const uint32_t missed = state_[page] == 0 ? 1 : 0;
                    const uint32_t gone = turns.request(page, missed);
                    if (gone < pages) [[likely]]
                        state_[gone] = 0;  // otherwise the host objects
                    state_[page] = MOORAGE_WHOLE;
                    *outcomes++ = gone | (missed - 1);
                }
            }
        }
    }

    // The same for whole steps of several requests.
    void wholes(uint32_t token, const uint32_t *experts, uint32_t *outcomes) {
        switch (run_.width) {  // usual widths, so the loops have a known length
            case 2:
                return wholes_of<2>(token, experts, outcomes);
            case 4:
                return wholes_of<4>(token, experts, outcomes);
            default:
                return wholes_of<0>(token, experts, outcomes);
        }
    }
    template <uint32_t Width>
    void wholes_of(uint32_t token, const uint32_t *experts, uint32_t *outcomes) {
        const uint32_t page_count = view_.layers * view_.experts;
        const uint32_t width = Width == 0 ? run_.width : Width;
        uint32_t pages[64] = {}, missed[64] = {};
        auto turns = policy_.whole_steps();
        const uint32_t visits = (run_.token_count - token) * run_.rounds;
        for (uint32_t visit = 0; visit < visits; ++visit) {
            for (uint32_t first = 0; first < page_count; first += view_.experts) {
                for (uint32_t repeat = 0; repeat < run_.repeats; ++repeat) {
                    uint32_t misses = 0;
                    for (uint32_t i = 0; i < width; ++i) {
                        pages[i] = first + experts[i];
                        missed[i] = state_[pages[i]] == 0 ? 1 : 0;
                        misses |= missed[i];
                    }
                    turns.request(std::span<const uint32_t>(pages, width),
                                  std::span<const uint32_t>(missed, width),
                                  std::span<uint32_t>(outcomes, width));
                    if (misses == 0) {
                        for (uint32_t i = 0; i < width; ++i) outcomes[i] = MOORAGE_REPLAY_KEPT;
                    } else {
                        for (uint32_t i = 0; i < width; ++i) {
                            if (missed[i] == 0)
                                outcomes[i] = MOORAGE_REPLAY_KEPT;
                            else if (outcomes[i] < page_count) [[likely]]
                                state_[outcomes[i]] = 0;  // otherwise the host objects
                        }
                        for (uint32_t i = 0; i < width; ++i) state_[pages[i]] = MOORAGE_WHOLE;
                    }
                    experts += width;
                    outcomes += width;
                }
            }
        }
    }

    uint32_t pool(uint32_t layer) const { return view_.pools == 1 ? 0 : layer; }

    void observe(const step &step) {
        if constexpr (requires { policy_.observe(step); }) policy_.observe(step);
    }

    void run_single(const step &step, const uint32_t *experts, uint32_t *outcomes) {
        const uint32_t page = step.layer * view_.experts + experts[0];
        const bool missed = state_[page] == 0;
        state_[page] |= MOORAGE_STATE_PINNED;
        observe(step);
        *outcomes = missed ? make_room(page, step.layer) : MOORAGE_REPLAY_KEPT;
        state_[page] &= ~MOORAGE_STATE_PINNED;
    }

    uint32_t make_room(uint32_t page, uint32_t layer) {
        uint32_t victim = MOORAGE_NONE;
        const uint32_t pool_id = pool(layer), slots = view_.host_slots[pool_id];
        const bool full = used_[pool_id] >= slots;
        if (full && slots != 0) {
            const room need{sizeof(room), 0, pool_id, layer, 1, MOORAGE_DEMAND};
            pages list(&victim, 1);
            policy_.victims(need, list);
        }
        return load(page, pool_id, victim, full);
    }

    void run_several(const step &step, const uint32_t *experts, uint32_t *outcomes) {
        const uint32_t first = step.layer * view_.experts, pool_id = pool(step.layer);
        uint32_t misses = 0;
        for (uint32_t i = 0; i < run_.width; ++i) {
            uint32_t &state = state_[first + experts[i]];
            misses += state == 0;
            outcomes[i] = state == 0 ? 0 : MOORAGE_REPLAY_KEPT;
            state |= MOORAGE_STATE_PINNED;
        }
        observe(step);
        if (misses) {
            const uint32_t slots = view_.host_slots[pool_id];
            const uint32_t free = slots > used_[pool_id] ? slots - used_[pool_id] : 0;
            const uint32_t wanted = misses > free ? misses - free : 0;
            uint32_t victims[64] = {}, got = 0, next = 0, spare = free;
            const uint32_t ask = wanted < slots ? wanted : slots;
            if (ask) {
                const room need{sizeof(room),  0, pool_id, step.layer, ask < 64 ? ask : 64,
                                MOORAGE_DEMAND};
                pages list(victims, need.count);
                policy_.victims(need, list);
                got = list.size();
            }
            for (uint32_t i = 0; i < run_.width; ++i) {
                if (outcomes[i] == MOORAGE_REPLAY_KEPT) continue;
                const bool full = spare == 0;
                const uint32_t victim = full && next < got ? victims[next++] : MOORAGE_NONE;
                outcomes[i] = load(first + experts[i], pool_id, victim, full);
                spare -= !full && outcomes[i] != MOORAGE_REPLAY_BYPASS;
            }
        }
        for (uint32_t i = 0; i < run_.width; ++i)
            state_[first + experts[i]] &= ~MOORAGE_STATE_PINNED;
    }

    // Loads a page that is not resident, into a free slot or into the victim's place.
    uint32_t load(uint32_t page, uint32_t pool_id, uint32_t victim, bool full) {
        if (full && victim == MOORAGE_NONE) return MOORAGE_REPLAY_BYPASS;
        if constexpr (requires(const admission &a) { policy_.admit(a); }) {
            const admission ask{sizeof(admission), 0, page, victim, MOORAGE_WHOLE, MOORAGE_DEMAND};
            if (!policy_.admit(ask)) return MOORAGE_REPLAY_BYPASS;
        }
        if (full) {
            if (victim >= view_.layers * view_.experts) return victim;  // the host will object
            state_[victim] &= ~(MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT);
            if constexpr (requires { policy_.on_evict(0u, 0); })
                policy_.on_evict(victim, MOORAGE_DEMAND);
        } else {
            ++used_[pool_id];
        }
        state_[page] |= MOORAGE_WHOLE;
        if constexpr (requires { policy_.on_load(0u, 0u, 0); })
            policy_.on_load(page, MOORAGE_WHOLE, MOORAGE_DEMAND);
        return full ? victim : MOORAGE_REPLAY_KEPT;
    }

    P &policy_;
    const moorage_replay run_;
    const moorage_residency view_;  // by value: its counts stay in registers
    uint32_t *state_;
    uint32_t *used_;
};

}  // namespace moorage::detail

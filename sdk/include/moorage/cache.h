/* cache.h - interface moorage.cache/1: which resident experts make room for others.
 *
 * Order of calls in a step: observe (step.h) -> victims, once, when more is to be loaded than has
 * room -> for every load admit, on_evict of its victim, on_load. Loads by prefetch and evictions by
 * a shrinking budget come between steps through the same functions. Where a cluster's plan changes,
 * on_evict and on_load alone say so (cause MOORAGE_MIGRATION): nobody is asked. The host owns the
 * truth: read it from the residency view; keep only the policy's own order.
 *
 * Advice is checked: a victim must be resident in a slot of the asked pool, unpinned, unbuffered,
 * and named once. Anything else is a fault of the policy.
 */
#ifndef MOORAGE_CACHE_H
#define MOORAGE_CACHE_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moorage_room {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t pool;  /* that needs room: 0 when shared, the layer when per-layer */
    uint32_t layer; /* for which the room is wanted */
    uint32_t count; /* victims wanted, 1 .. slots of the pool */
    int32_t cause;  /* MOORAGE_DEMAND, MOORAGE_PREFETCH, MOORAGE_BUDGET or MOORAGE_ADVICE */
} moorage_room;
MOORAGE_ASSERT(sizeof(moorage_room) == 24, "moorage_room layout");

typedef struct moorage_admission {
    uint32_t size;
    uint32_t flags;    /* 0 */
    uint32_t page;     /* to be loaded */
    uint32_t victim;   /* that would make room, or MOORAGE_NONE: there is a free slot */
    uint32_t segments; /* mask to be loaded */
    int32_t cause;
} moorage_admission;
MOORAGE_ASSERT(sizeof(moorage_admission) == 24, "moorage_admission layout");

#define MOORAGE_INTERFACE_CACHE "moorage.cache/1"
typedef struct moorage_cache {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Writes up to room->count pages, first to go first; returns how many. Fewer than asked only
     * when the pool has no further page that may go and that it does not hold. Required. [step] */
    uint32_t (*victims)(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages);
    /* 0: do not cache this page; it is served through the transfer buffer. Null: always 1. [step]
     */
    uint32_t (*admit)(moorage_plugin *plugin, const moorage_admission *admission);
    /* `page` now has a slot (its bytes may still be in flight). May be null. [step] */
    void (*on_load)(moorage_plugin *plugin, uint32_t page, uint32_t segments, int32_t cause);
    /* `page` lost its slot. May be null. [step] */
    void (*on_evict)(moorage_plugin *plugin, uint32_t page, int32_t cause);
    /* Names up to room->count pages that are to fill a pool's free slots while nothing runs: before
     * the run and after a new budget has emptied the caches (cause MOORAGE_BUDGET; room->layer is
     * MOORAGE_NONE for a shared pool). Returns how many; each is then loaded, with on_load. Null:
     * slots stay empty until demand fills them. [control] */
    uint32_t (*fill)(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages);
    /* 1: the policy holds `page`: it goes for no load, the host's own replacement of wrong advice
     * included, and what finds no room passes through. A shrinking budget and a cluster's plan take
     * it all the same.
     * Asked only of pages that the host would take. Null: none is held. [step] */
    uint32_t (*hold)(moorage_plugin *plugin, uint32_t page);
    /* Names up to room->count pages of a pool that are to go now, though nobody wants their room:
     * asked when a step of that pool has ended (cause MOORAGE_ADVICE); each goes through on_evict.
     * As victims they must be evictable, and named once. Null: none. Not asked of a server that
     * could not load them again. [step] */
    uint32_t (*give_up)(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages);
} moorage_cache;
MOORAGE_ASSERT(sizeof(moorage_cache) == 64, "moorage_cache layout");

/* Outcome of one request in a replay; any other value is the page that was evicted for it. */
#define MOORAGE_REPLAY_KEPT 0xffffffffu /* hit, or loaded into a free slot: nothing was evicted */
#define MOORAGE_REPLAY_BYPASS \
    0xfffffffeu /* missed and not cached: every slot pinned, or not admitted */

/* Whole tokens of a trace in which nothing but the cache decides. For each token, `rounds` times,
 * for each layer (one visit), `repeats` steps of `width` distinct requests. Steps, visits and
 * tokens continue from the first_ fields. */
typedef struct moorage_replay {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint64_t first_step;
    uint64_t first_visit;
    uint64_t first_token;
    uint32_t token_count;
    uint32_t rounds;
    uint32_t repeats;
    uint32_t width;
    const uint32_t *host_experts;  /* [token, round, layer, repeat, width], as requested */
    const uint64_t *host_requests; /* [token] running number of the request (text) of each token */
    uint32_t *host_state;    /* [layers * experts] the residency view's own words, lent for the
                              * call: the callee keeps resident and pinned bits right */
    uint32_t *host_used;     /* [pools] likewise */
    uint32_t *host_outcomes; /* out, as host_experts: KEPT, BYPASS or the evicted page */
} moorage_replay;
MOORAGE_ASSERT(offsetof(moorage_replay, host_experts) == 48, "moorage_replay layout");
MOORAGE_ASSERT(sizeof(moorage_replay) == 88, "moorage_replay layout");

/* Offered beside moorage.cache/1: the fast path of counting replays. Wrappers make it. */
#define MOORAGE_INTERFACE_REPLAY "moorage.replay/1"

/* A wrapper made it out of the cache's calls, so it counts as none of the policy's own. */
enum { MOORAGE_REPLAY_DERIVED = 1u };
typedef struct moorage_replayer {
    uint32_t size;
    uint32_t flags; /* MOORAGE_REPLAY_DERIVED */
    /* Does for many steps what the cache's calls would do one by one, decision for decision. The
     * host checks every outcome against its own account, and goes step by step where it has to: a
     * policy that admits, holds or gives up. Required. [step] */
    void (*replay)(moorage_plugin *plugin, const moorage_replay *run);
} moorage_replayer;
MOORAGE_ASSERT(sizeof(moorage_replayer) == 16, "moorage_replayer layout");

#ifdef __cplusplus
}
#endif
#endif

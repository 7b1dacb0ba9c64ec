/* cache.h - interface moorage.cache/1: which resident experts are evicted to make room.
 *
 * Order of calls in a step:
 * 1. observe (step.h)
 * 2. victims, once, if the loads of the step need more room than is free
 * 3. for every load: admit, on_evict of its victim, on_load
 * The same functions serve loads by prefetch and evictions by a shrinking budget, which come
 * between steps. If a cluster's plan changes, only on_evict and on_load are called, with cause
 * MOORAGE_MIGRATION. The policy is not asked then.
 *
 * The host knows what is resident. Read it from the residency view, and keep only the policy's own
 * order.
 *
 * The host checks the advice. A victim must be resident in a slot of the asked pool, unpinned,
 * unbuffered, and named once. Anything else counts as a fault of the policy.
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
    uint32_t pool;  /* the pool that needs room: 0 if shared, the layer if per-layer */
    uint32_t layer; /* the layer that wants the room */
    uint32_t count; /* victims wanted, 1 .. slots of the pool */
    int32_t cause;  /* MOORAGE_DEMAND, MOORAGE_PREFETCH, MOORAGE_BUDGET or MOORAGE_ADVICE */
} moorage_room;
MOORAGE_ASSERT(sizeof(moorage_room) == 24, "moorage_room layout");

typedef struct moorage_admission {
    uint32_t size;
    uint32_t flags;    /* 0 */
    uint32_t page;     /* page to be loaded */
    uint32_t victim;   /* page that would make room; MOORAGE_NONE: there is a free slot */
    uint32_t segments; /* mask to be loaded */
    int32_t cause;
} moorage_admission;
MOORAGE_ASSERT(sizeof(moorage_admission) == 24, "moorage_admission layout");

#define MOORAGE_INTERFACE_CACHE "moorage.cache/1"
typedef struct moorage_cache {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Writes up to room->count pages, the first to be evicted first, and returns their number. It
     * may return fewer only if the pool has no other page that may be evicted and that the policy
     * does not hold. Required. [step] */
    uint32_t (*victims)(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages);
    /* 0: do not cache this page; the transfer buffer serves it. Null: always 1. [step] */
    uint32_t (*admit)(moorage_plugin *plugin, const moorage_admission *admission);
    /* `page` now has a slot. Its bytes may still be in flight. May be null. [step] */
    void (*on_load)(moorage_plugin *plugin, uint32_t page, uint32_t segments, int32_t cause);
    /* `page` lost its slot. May be null. [step] */
    void (*on_evict)(moorage_plugin *plugin, uint32_t page, int32_t cause);
    /* Names up to room->count pages to fill the free slots of a pool while nothing runs. Called
     * before the run, and after a new budget has emptied the caches. The cause is MOORAGE_BUDGET;
     * room->layer is MOORAGE_NONE for a shared pool. Returns the number of pages. Each page is then
     * loaded, with on_load. Null: slots stay empty until demand fills them. [control] */
    uint32_t (*fill)(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages);
    /* 1: the policy holds `page`. No load evicts it, even if the host replaces wrong advice. A load
     * that finds no room then passes through without a slot. A shrinking budget and a cluster's
     * plan evict a held page all the same. The host asks only about pages that it would evict.
     * Null: no page is held. [step] */
    uint32_t (*hold)(moorage_plugin *plugin, uint32_t page);
    /* Names up to room->count pages of a pool to evict now, although no load needs their room.
     * Asked when a step of that pool has ended (cause MOORAGE_ADVICE). on_evict follows for each
     * page. The pages must be evictable, as victims are, and named once. Not asked on a server that
     * could not load them again. Null: none. [step] */
    uint32_t (*give_up)(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages);
} moorage_cache;
MOORAGE_ASSERT(sizeof(moorage_cache) == 64, "moorage_cache layout");

/* Outcome of one request in a replay. Any other value is the page that was evicted for it. */
#define MOORAGE_REPLAY_KEPT 0xffffffffu /* hit, or loaded into a free slot: nothing was evicted */
#define MOORAGE_REPLAY_BYPASS \
    0xfffffffeu /* missed and not cached: every slot pinned, or not admitted */

/* Whole tokens of a trace. Only the cache decides. A token has `rounds` rounds over all layers.
 * Each layer of a round is one visit, with `repeats` steps of `width` distinct requests. Steps,
 * visits and tokens continue from the first_ fields. */
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
    const uint64_t *host_requests; /* [token] running number of each token's request (text) */
    uint32_t *host_state;    /* [layers * experts] the residency view's own words, lent for the
                              * call. The callee keeps the resident and pinned bits right */
    uint32_t *host_used;     /* [pools] lent like host_state */
    uint32_t *host_outcomes; /* result, shaped as host_experts: KEPT, BYPASS or the evicted page */
} moorage_replay;
MOORAGE_ASSERT(offsetof(moorage_replay, host_experts) == 48, "moorage_replay layout");
MOORAGE_ASSERT(sizeof(moorage_replay) == 88, "moorage_replay layout");

/* Offered beside moorage.cache/1: the fast path of counting replays. The wrappers provide it. */
#define MOORAGE_INTERFACE_REPLAY "moorage.replay/1"

/* A wrapper derived the table from the cache's calls. It does not count as a call of the policy. */
enum { MOORAGE_REPLAY_DERIVED = 1u };
typedef struct moorage_replayer {
    uint32_t size;
    uint32_t flags; /* MOORAGE_REPLAY_DERIVED */
    /* Does for many steps what the cache's calls would do one by one, with equal decisions. The
     * host checks every outcome against its own account. It goes step by step if the policy admits,
     * holds or gives up pages. Required. [step] */
    void (*replay)(moorage_plugin *plugin, const moorage_replay *run);
} moorage_replayer;
MOORAGE_ASSERT(sizeof(moorage_replayer) == 16, "moorage_replayer layout");

#ifdef __cplusplus
}
#endif
#endif

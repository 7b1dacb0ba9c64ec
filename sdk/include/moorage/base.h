/* base.h - constants and the residency view shared by every moorage interface (Apache-2.0).
 *
 * Words. A *page* names an expert of a layer: page = layer * experts + expert. A *segment* is a
 * part of an expert, cut along its intermediate dimension; the first is computed first. A *store*
 * is a memory that holds experts, a *device* computes on one, a *link* moves bytes between two
 * (machine.h). A *slot* is room for one expert in a store. A *pool* is a group of slots with one
 * capacity: one pool for all layers ("shared") or one per layer ("per-layer").
 *
 * Rules of every header here: structs begin with their size in bytes and only ever grow at the
 * end; there is no implicit padding; `host_` pointers are owned by the host and borrowed for the
 * call unless a comment says longer; `plugin_` pointers are owned by the plugin. Thread tags:
 *   [load]     scan and create, one thread
 *   [control]  activate, plan, report: one thread, may allocate and block
 *   [step]     inside a layer step: never concurrent on one instance, may move between threads,
 *              must neither allocate nor block nor fail; a count of 0 means "no advice"
 *   [any]      callable from any thread at any time
 */
#ifndef MOORAGE_BASE_H
#define MOORAGE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define MOORAGE_ASSERT(condition, text) static_assert(condition, text)
#else
#define MOORAGE_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define MOORAGE_ABI_MAJOR 2
#define MOORAGE_ABI_MINOR 1

/* True when `object` was made by a writer that knows `field`. Use it before reading a field that
 * is newer than the first version of its struct. */
#define MOORAGE_HAS(object, type, field) \
    ((object)->size >= offsetof(type, field) + sizeof(((type *)0)->field))

#define MOORAGE_NONE UINT32_MAX  /* no page, layer, pool, store, device or count */
#define MOORAGE_NEVER UINT64_MAX /* no such step: the page is never requested again */

/* Status of fallible functions. Values outside the list count as MOORAGE_INTERNAL. */
enum {
    MOORAGE_OK = 0,
    MOORAGE_INVALID_ARGUMENT = 1, /* a value cannot be used; set_error says which and why */
    MOORAGE_UNSUPPORTED = 2,      /* right in itself, but not offered here */
    MOORAGE_OUT_OF_MEMORY = 3,
    MOORAGE_WRONG_STATE = 4, /* for instance activate on an active instance */
    MOORAGE_INTERNAL = 5
};

/* Segments of an expert, as a mask of eight bits. Of `count` (moorage_limits.segments) each has its
 * bit, but the last one all bits that are left: so a whole expert is MOORAGE_WHOLE however many
 * there are, and one that is not split is all last segment. */
#define MOORAGE_WHOLE 0xffu
#define MOORAGE_SEGMENT(index, count) \
    ((index) + 1 < (count) ? 1u << (index) : MOORAGE_WHOLE >> (index) << (index))

/* State of a page in a store, one word. RESIDENT: segments that are there. IN_FLIGHT: segments on
 * their way to it. BUFFERED: segments that lie beside the cache's slots, in the transfer buffer (a
 * prefetch not yet used) or for the running step alone: resident for routing and dispatch, and the
 * page cannot be a victim. VERSION: in which precision what is there or on its way is held; 0 is
 * the model's own, 1 a second, smaller one. A page is in one version at a time: where a step asks
 * for a better one than is held, it loses that before anybody looks, as if it were evicted.
 * PINNED: in use by the running step; it cannot be a victim. */
#define MOORAGE_STATE_RESIDENT 0x000000ffu
#define MOORAGE_STATE_IN_FLIGHT 0x0000ff00u
#define MOORAGE_STATE_IN_FLIGHT_SHIFT 8
#define MOORAGE_STATE_BUFFERED 0x00ff0000u
#define MOORAGE_STATE_BUFFERED_SHIFT 16
#define MOORAGE_STATE_VERSION 0x0f000000u
#define MOORAGE_STATE_VERSION_SHIFT 24
#define MOORAGE_STATE_PINNED 0x80000000u

/* Why a page was loaded, evicted or needs room. */
enum {
    MOORAGE_DEMAND = 0,
    MOORAGE_PREFETCH = 1,
    MOORAGE_BUDGET = 2,
    MOORAGE_MIGRATION = 3,
    MOORAGE_ADVICE = 4 /* the cache policy gave it up (moorage_cache.give_up) */
};

/* Phase of a layer step: the tokens of a prompt; one of each request; tokens that a smaller model
 * is to propose; tokens that were proposed, side by side. No source drafts or verifies so far. */
enum { MOORAGE_PREFILL = 0, MOORAGE_DECODE = 1, MOORAGE_DRAFT = 2, MOORAGE_VERIFY = 3 };

/* Where everything is in one store. Mapped once: the pointers stay valid from activate to
 * deactivate and their contents change under the reader between calls, never during one. [any] */
typedef struct moorage_residency {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layers;
    uint32_t experts;           /* per layer */
    uint32_t pools;             /* 1 (shared) or layers (per-layer) */
    uint32_t store;             /* id of it (moorage_limits.host_stores); of several devices'
                                 * stores together: that of the first */
    const uint32_t *host_state; /* [layers * experts] MOORAGE_STATE_* of each page */
    const uint32_t *host_slots; /* [pools] cache slots of each; changes with the budget */
    const uint32_t *host_used;  /* [pools] slots taken, in flight included */
    const float *host_split;    /* [layers] share of an expert that is its first segment, (0, 1];
                                 * the others are of equal size */
    /* The store that loads into this one come from, or null: it has everything. Fast memory's is
     * host memory where experts are read from disk. */
    const struct moorage_residency *host_below;
    /* The store that is loaded from this one, or null: of host memory, fast memory. */
    const struct moorage_residency *host_above;
} moorage_residency;
MOORAGE_ASSERT(offsetof(moorage_residency, host_state) == 24, "moorage_residency layout");
MOORAGE_ASSERT(sizeof(moorage_residency) == 72, "moorage_residency layout");

/* What things cost here: from the profile in the emulator, moving averages in real runs. Mapped as
 * moorage_residency is. All times are for one uncontended operation. [any] */
typedef struct moorage_costs {
    uint32_t size;
    uint32_t flags;             /* 0 */
    uint64_t expert_bytes;      /* of a whole expert */
    uint64_t load_ns;           /* a whole expert from host memory to fast memory */
    uint64_t transfer_issue_ns; /* constant part of load_ns */
    uint64_t attention_ns;      /* attention, gate and shared experts of a layer, one token */
    uint64_t gpu_expert_ns;     /* one resident expert on the GPU, one token */
    uint64_t gpu_token_ns;      /* what each further token of that expert adds */
    uint64_t cpu_expert_ns;     /* one expert on the CPU, one token */
    uint64_t cpu_token_ns;      /* what each further token of that expert adds */
    uint64_t head_ns;           /* output head, one token: between the last layer and the first */
    uint64_t disk_read_ns;      /* a whole expert from disk to host memory; 0: there is no disk */
} moorage_costs;
MOORAGE_ASSERT(offsetof(moorage_costs, expert_bytes) == 8, "moorage_costs layout");
MOORAGE_ASSERT(sizeof(moorage_costs) == 88, "moorage_costs layout");

#ifdef __cplusplus
}
#endif
#endif

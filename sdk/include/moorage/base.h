/* base.h - constants and the residency view shared by every moorage interface (Apache-2.0).
 *
 * Words:
 *   page     an expert of a layer; its number is layer * experts + expert
 *   segment  a part of an expert, cut along its intermediate dimension; segment 0 is computed first
 *   store    a memory that holds experts (machine.h)
 *   device   computes on one store (machine.h)
 *   link     moves bytes between two stores (machine.h)
 *   slot     room for one expert in a store
 *   pool     a group of slots with one capacity: one pool for all layers ("shared"), or one pool
 *            for each layer ("per-layer")
 *
 * Rules of every header here. A struct begins with its size in bytes and only grows at the end.
 * There is no implicit padding. The host owns `host_` pointers and lends them for the call, unless
 * a comment says longer. The plugin owns `plugin_` pointers.
 *
 * Thread tags:
 *   [load]     scan and create, one thread
 *   [control]  activate, plan, report: one thread, may allocate and block
 *   [step]     inside a layer step: calls on one instance never overlap, but may come from changing
 *              threads; must neither allocate nor block nor fail; a count of 0 means "no advice"
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

/* True if the writer of `object` knows `field`. Test this before you read a field that is newer
 * than the first version of its struct. */
#define MOORAGE_HAS(object, type, field) \
    ((object)->size >= offsetof(type, field) + sizeof(((type *)0)->field))

#define MOORAGE_NONE UINT32_MAX  /* no page, layer, pool, store, device or count */
#define MOORAGE_NEVER UINT64_MAX /* no such step: nothing requests the page again */

/* Status of fallible functions. Values outside the list count as MOORAGE_INTERNAL. */
enum {
    MOORAGE_OK = 0,
    MOORAGE_INVALID_ARGUMENT = 1, /* a value cannot be used; set_error names it and says why */
    MOORAGE_UNSUPPORTED = 2,      /* valid in itself, but not offered here */
    MOORAGE_OUT_OF_MEMORY = 3,
    MOORAGE_WRONG_STATE = 4, /* for example: activate on an active instance */
    MOORAGE_INTERNAL = 5
};

/* Segments of an expert, as a mask of eight bits. `count` is moorage_limits.segments. Each segment
 * has its own bit. The last segment has all bits that are left. So MOORAGE_WHOLE is a whole expert
 * for every count. An expert that is not split consists of its last segment only. */
#define MOORAGE_WHOLE 0xffu
#define MOORAGE_SEGMENT(index, count) \
    ((index) + 1 < (count) ? 1u << (index) : MOORAGE_WHOLE >> (index) << (index))

/* State of a page in a store, one word.
 * RESIDENT: the segments that the store holds.
 * IN_FLIGHT: the segments that are on their way to the store.
 * BUFFERED: the segments that lie beside the cache's slots. They are in the transfer buffer, as a
 * prefetch that is not used yet, or only serve the running step. Router and dispatch count them as
 * resident. The page cannot be a victim.
 * VERSION: the precision of the segments that are there or on their way. 0 is the model's own
 * precision, 1 a second, smaller version. A page is in one version at a time. If a step asks for a
 * better version than the held one, the page loses the held one before any policy looks, as if it
 * were evicted.
 * PINNED: the running step uses the page. It cannot be a victim. */
#define MOORAGE_STATE_RESIDENT 0x000000ffu
#define MOORAGE_STATE_IN_FLIGHT 0x0000ff00u
#define MOORAGE_STATE_IN_FLIGHT_SHIFT 8
#define MOORAGE_STATE_BUFFERED 0x00ff0000u
#define MOORAGE_STATE_BUFFERED_SHIFT 16
#define MOORAGE_STATE_VERSION 0x0f000000u
#define MOORAGE_STATE_VERSION_SHIFT 24
#define MOORAGE_STATE_PINNED 0x80000000u

/* The cause of a load, of an eviction or of a request for room. */
enum {
    MOORAGE_DEMAND = 0,
    MOORAGE_PREFETCH = 1,
    MOORAGE_BUDGET = 2,
    MOORAGE_MIGRATION = 3,
    MOORAGE_ADVICE = 4 /* the cache policy gave the page up (moorage_cache.give_up) */
};

/* Phase of a layer step. PREFILL: the tokens of a prompt. DECODE: one token of each request. DRAFT:
 * tokens that a smaller model is to propose. VERIFY: proposed tokens, side by side. No source
 * drafts or verifies yet. */
enum { MOORAGE_PREFILL = 0, MOORAGE_DECODE = 1, MOORAGE_DRAFT = 2, MOORAGE_VERIFY = 3 };

/* The state of all pages in one store. The host maps it once. The pointers stay valid from activate
 * to deactivate. The contents change between calls, never during a call. [any] */
typedef struct moorage_residency {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layers;
    uint32_t experts;           /* per layer */
    uint32_t pools;             /* 1 (shared) or layers (per-layer) */
    uint32_t store;             /* id of this store (moorage_limits.host_stores); if the view
                                 * covers the stores of several devices: the first one's id */
    const uint32_t *host_state; /* [layers * experts] MOORAGE_STATE_* of each page */
    const uint32_t *host_slots; /* [pools] cache slots of each pool; change with the budget */
    const uint32_t *host_used;  /* [pools] slots taken, those in flight included */
    const float *host_split;    /* [layers] the first segment's share of an expert, (0, 1]; the
                                 * other segments are of equal size */
    /* The store that loads into this store come from. Null: this store has everything. For fast
     * memory it is host memory if experts are read from disk. */
    const struct moorage_residency *host_below;
    /* The store that is loaded from this one, or null. For host memory it is fast memory. */
    const struct moorage_residency *host_above;
} moorage_residency;
MOORAGE_ASSERT(offsetof(moorage_residency, host_state) == 24, "moorage_residency layout");
MOORAGE_ASSERT(sizeof(moorage_residency) == 72, "moorage_residency layout");

/* The cost of each operation on this machine. In the emulator the values come from the profile. In
 * real runs they are moving averages. Mapped as moorage_residency is. Each time is for one
 * uncontended operation. [any] */
typedef struct moorage_costs {
    uint32_t size;
    uint32_t flags;             /* 0 */
    uint64_t expert_bytes;      /* of a whole expert */
    uint64_t load_ns;           /* one whole expert from host memory to fast memory */
    uint64_t transfer_issue_ns; /* the constant part of load_ns */
    uint64_t attention_ns;      /* attention, gate and shared experts of a layer, for one token */
    uint64_t gpu_expert_ns;     /* one resident expert on the GPU, for one token */
    uint64_t gpu_token_ns;      /* added by each further token of that expert */
    uint64_t cpu_expert_ns;     /* one expert on the CPU, for one token */
    uint64_t cpu_token_ns;      /* added by each further token of that expert */
    uint64_t head_ns;           /* output head for one token, between the last layer and the
                                 * first */
    uint64_t disk_read_ns;      /* one whole expert from disk to host memory; 0: there is no disk */
} moorage_costs;
MOORAGE_ASSERT(offsetof(moorage_costs, expert_bytes) == 8, "moorage_costs layout");
MOORAGE_ASSERT(sizeof(moorage_costs) == 88, "moorage_costs layout");

#ifdef __cplusplus
}
#endif
#endif

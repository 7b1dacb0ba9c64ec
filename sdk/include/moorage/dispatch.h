/* dispatch.h - interface moorage.dispatch/1: where each expert of a step is computed.
 *
 * Items are the step's distinct experts, resident ones first. A resident expert computes on the GPU
 * unless moved; an absent one is loaded, computed on the CPU, or sent to a server that has it.
 */
#ifndef MOORAGE_DISPATCH_H
#define MOORAGE_DISPATCH_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sites. Remote server i is MOORAGE_SITE_REMOTE + i. Where a server has several devices each counts
 * as one, and the cloud as one more. */
enum { MOORAGE_SITE_GPU = 0, MOORAGE_SITE_CPU = 1, MOORAGE_SITE_REMOTE = 2 };
/* Or-ed to a site other than the GPU, for an absent expert: it is also brought into the cache, for
 * later steps, behind all demand (the cache is asked for room with cause MOORAGE_PREFETCH). Should
 * a step want it before it has arrived, what is left counts as missing. Without effect while such a
 * load of it is under way, or too many are. */
#define MOORAGE_SITE_AND_LOAD 0x80000000u

/* How far a remote server is: of the server at which tokens entered, of another, or the cloud. */
enum { MOORAGE_DISTANCE_OWN = 0, MOORAGE_DISTANCE_OTHER = 1, MOORAGE_DISTANCE_CLOUD = 2 };
/* Flag of items: servers are called one after another, so that their times add up. Without it they
 * are called at once. */
enum { MOORAGE_ITEMS_SERIAL = 1u };

/* Struct of arrays over `count` items; times are for the item's own tokens and missing bytes.
 * A segment in flight counts as missing, and its load time is for what is left of it. A backlog
 * counts the operation under way as well. */
typedef struct moorage_items {
    uint32_t size;
    uint32_t flags; /* MOORAGE_ITEMS_SERIAL */
    uint32_t count;
    uint32_t servers;               /* remote servers */
    uint64_t load_backlog_ns;       /* the link is busy this long with earlier demand loads; of
                                     * several links that which has most */
    uint64_t cpu_backlog_ns;        /* the CPU pool likewise */
    const uint32_t *host_experts;   /* [count] */
    const uint32_t *host_tokens;    /* [count] tokens that chose it */
    const uint8_t *host_missing;    /* [count] segments absent: 0 resident, MOORAGE_WHOLE absent */
    const float *host_scores;       /* [count] largest gate score or weight, or null */
    const uint64_t *host_load_ns;   /* [count] to bring what is missing; MOORAGE_NEVER: this
                                     * host's memory lacks it, so it cannot run here */
    const uint64_t *host_gpu_ns;    /* [count] to compute it on the GPU */
    const uint64_t *host_cpu_ns;    /* [count] to compute it on the CPU */
    const uint64_t *host_remote_ns; /* [R] one of an item's remote servers after the other, see
                                     * host_remote_first; the way there and back included */
    /* The link is busy this long with loads of MOORAGE_SITE_AND_LOAD, demand and prefetch apart. */
    uint64_t behind_backlog_ns;
    /* Remote servers that have an expert: those of item i are [first[i], first[i + 1]) of the R
     * entries, ascending by server. All null without servers. */
    const uint32_t *host_remote_first;   /* [count + 1] */
    const uint32_t *host_remote_servers; /* [R] */
    /* [R] what is part of host_remote_ns but taken once, however many items of the step the server
     * computes: the way there, and whatever it does side by side. */
    const uint64_t *host_once_ns;
    const uint8_t *host_distance; /* [servers] MOORAGE_DISTANCE_* */
    /* Devices that share the experts. MOORAGE_SITE_GPU is each item's own, whose times the arrays
     * above give; items of different devices are loaded and computed side by side. */
    uint32_t devices;
    uint32_t reserved;
    const uint32_t *host_device;            /* [count] of the item; null: all of the first */
    const uint64_t *host_device_backlog_ns; /* [devices] load_backlog_ns of each; null likewise */
    /* [devices] hidden states there and back, once a step if the device computes anything; 0 for
     * the first. Null likewise. */
    const uint64_t *host_device_once_ns;
} moorage_items;
MOORAGE_ASSERT(offsetof(moorage_items, host_experts) == 32, "moorage_items layout");
MOORAGE_ASSERT(sizeof(moorage_items) == 168, "moorage_items layout");

/* What one item took, as measured. */
typedef struct moorage_dispatched {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layer;
    uint32_t expert;
    uint32_t site;
    uint32_t tokens;
    uint64_t load_ns; /* transfer, waiting excluded; 0 without one */
    uint64_t run_ns;  /* computation, waiting excluded */
} moorage_dispatched;
MOORAGE_ASSERT(sizeof(moorage_dispatched) == 40, "moorage_dispatched layout");

#define MOORAGE_INTERFACE_DISPATCH "moorage.dispatch/1"
typedef struct moorage_dispatch {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Fills a site per item, and in host_order the items in the order in which each site is to take
     * them (comes filled 0, 1, 2, ...). Returns count, or 0: everything on the GPU in the given
     * order, but what cannot run here on the server that takes least. Required. [step] */
    uint32_t (*assign)(moorage_plugin *plugin, const moorage_step *step, const moorage_items *items,
                       uint32_t *host_sites, uint32_t *host_order);
    /* Once per item after the step. May be null. [step] */
    void (*outcome)(moorage_plugin *plugin, const moorage_dispatched *outcome);
} moorage_dispatch;
MOORAGE_ASSERT(sizeof(moorage_dispatch) == 24, "moorage_dispatch layout");

#ifdef __cplusplus
}
#endif
#endif

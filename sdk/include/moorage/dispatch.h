/* dispatch.h - interface moorage.dispatch/1: where each expert of a step is computed.
 *
 * Items are the step's distinct experts, resident ones first. Each has a device of its own, a GPU
 * that holds its expert or would load it; it computes there unless the policy names another device
 * (machine.h): the CPU, or a server that has the expert.
 */
#ifndef MOORAGE_DISPATCH_H
#define MOORAGE_DISPATCH_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Or-ed to a device other than the item's own, for an absent expert: it is also brought into the
 * cache, for later steps, behind all demand (the cache is asked for room with cause
 * MOORAGE_PREFETCH). Should a step want it before it has arrived, what is left counts as missing.
 * Without effect while such a load of it is under way, or too many are, or it cannot be loaded
 * (host_load_ns is MOORAGE_NEVER). */
#define MOORAGE_AND_LOAD 0x80000000u

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
    uint32_t devices;  /* of the machine (machine.h) */
    uint32_t gpus;     /* those below it are GPUs: the experts are spread over them, and
                        * what each has is loaded and computed side by side. The next
                        * one is the CPU, and those after it are servers */
    uint32_t reserved; /* 0 */
    const moorage_device *host_devices; /* [devices] */
    uint64_t load_backlog_ns;           /* the link is busy this long with earlier demand loads; of
                                         * several links that which has most */
    uint64_t behind_backlog_ns;   /* ... and this long with loads of MOORAGE_AND_LOAD, demand and
                                   * prefetch apart */
    const uint32_t *host_experts; /* [count] */
    const uint32_t *host_tokens;  /* [count] tokens that chose it */
    const uint8_t *host_missing;  /* [count] segments absent: 0 resident, MOORAGE_WHOLE absent */
    const float *host_scores;     /* [count] largest gate score or weight, or null */
    const uint32_t *host_device;  /* [count] the item's own device: its expert lies there, or would
                                   * be loaded there */
    const uint64_t *host_load_ns; /* [count] to bring what is missing; MOORAGE_NEVER: this host's
                                   * memory lacks it, so it cannot run here */
    const uint64_t *host_gpu_ns;  /* [count] to compute it on its own device */
    const uint64_t *host_cpu_ns;  /* [count] to compute it on the CPU */
    /* Servers that have an expert: those of item i are [first[i], first[i + 1]) of the R entries,
     * ascending by device. All null without servers. */
    const uint32_t *host_remote_first;   /* [count + 1] */
    const uint32_t *host_remote_devices; /* [R] */
    const uint64_t *host_remote_ns;      /* [R] the way there and back included */
    /* [R] what is part of host_remote_ns but taken once, however many items of the step the server
     * computes: the way there, and whatever it does side by side. */
    const uint64_t *host_once_ns;
    /* Of several GPUs; null where there is one. */
    const uint64_t *host_device_backlog_ns; /* [gpus] load_backlog_ns of each */
    const uint64_t *host_device_once_ns;    /* [gpus] hidden states there and back, once a step if
                                             * the device computes anything; 0 for the first */
} moorage_items;
MOORAGE_ASSERT(offsetof(moorage_items, host_experts) == 48, "moorage_items layout");
MOORAGE_ASSERT(sizeof(moorage_items) == 160, "moorage_items layout");

/* What one item took, as measured. */
typedef struct moorage_dispatched {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layer;
    uint32_t expert;
    uint32_t device;
    uint32_t tokens;
    uint64_t load_ns; /* transfer, waiting excluded; 0 without one */
    uint64_t run_ns;  /* computation, waiting excluded; of a server the whole call: way, waiting and
                       * the other items of the same call included */
} moorage_dispatched;
MOORAGE_ASSERT(sizeof(moorage_dispatched) == 40, "moorage_dispatched layout");

#define MOORAGE_INTERFACE_DISPATCH "moorage.dispatch/1"
typedef struct moorage_dispatch {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Fills a device per item (comes filled with the item's own, or where it cannot run there the
     * server that takes least), and in host_order the items in the order in which each device is to
     * take them (comes filled 0, 1, 2, ...). Returns count, or 0: all stays as it came filled.
     * Required. [step] */
    uint32_t (*assign)(moorage_plugin *plugin, const moorage_step *step, const moorage_items *items,
                       uint32_t *host_devices, uint32_t *host_order);
    /* Once per item after the step. May be null. [step] */
    void (*outcome)(moorage_plugin *plugin, const moorage_dispatched *outcome);
} moorage_dispatch;
MOORAGE_ASSERT(sizeof(moorage_dispatch) == 24, "moorage_dispatch layout");

#ifdef __cplusplus
}
#endif
#endif

/* dispatch.h - interface moorage.dispatch/1: where each expert of a step is computed.
 *
 * Items are the step's distinct experts, resident ones first. Each item has its own device: the GPU
 * that holds its expert, or would load it. The item runs there unless the policy names another
 * device (machine.h): the CPU, or a server that has the expert.
 */
#ifndef MOORAGE_DISPATCH_H
#define MOORAGE_DISPATCH_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Or-ed to the device of an absent expert, if that is not the item's own device. The expert is then
 * also loaded into the cache, for later steps. The load comes after all demand. The host asks the
 * cache for room with cause MOORAGE_PREFETCH. If a step wants the expert before it has arrived, the
 * rest counts as missing. The flag has no effect in three cases: such a load of the expert is under
 * way, too many such loads are under way, or the expert cannot be loaded (host_load_ns is
 * MOORAGE_NEVER). */
#define MOORAGE_AND_LOAD 0x80000000u

/* Flag of items: the servers are called one after another, so their times add up. Without it they
 * are called at once. */
enum { MOORAGE_ITEMS_SERIAL = 1u };

/* Struct of arrays over `count` items. Times are for the item's own tokens and missing bytes. A
 * segment in flight counts as missing; its load time covers the rest of it. A backlog includes the
 * operation under way. */
typedef struct moorage_items {
    uint32_t size;
    uint32_t flags; /* MOORAGE_ITEMS_SERIAL */
    uint32_t count;
    uint32_t devices;  /* devices of the machine (machine.h) */
    uint32_t gpus;     /* the devices below this number are GPUs. The experts are spread over
                        * them; they load and compute side by side. The next device is the CPU;
                        * servers follow */
    uint32_t reserved; /* 0 */
    const moorage_device *host_devices; /* [devices] */
    uint64_t load_backlog_ns;           /* how long earlier demand loads keep the link busy; with
                                         * several links: the busiest one */
    uint64_t behind_backlog_ns;   /* the same for loads of MOORAGE_AND_LOAD, without demand and
                                   * prefetch */
    const uint32_t *host_experts; /* [count] */
    const uint32_t *host_tokens;  /* [count] tokens that chose the expert */
    const uint8_t *host_missing;  /* [count] mask of absent segments: 0 resident, MOORAGE_WHOLE
                                   * absent */
    const float *host_scores;     /* [count] largest gate score or weight, or null */
    const uint32_t *host_device;  /* [count] the item's own device, which holds its expert or
                                   * would load it */
    const uint64_t *host_load_ns; /* [count] time to load the missing segments. MOORAGE_NEVER:
                                   * this host's memory lacks them, so the expert cannot run here */
    const uint64_t *host_gpu_ns;  /* [count] to compute on the item's own device */
    const uint64_t *host_cpu_ns;  /* [count] to compute on the CPU */
    /* The servers that have an expert. Those of item i are entries [first[i], first[i + 1]) of the
     * R entries, ascending by device. All null without servers. */
    const uint32_t *host_remote_first;   /* [count + 1] */
    const uint32_t *host_remote_devices; /* [R] */
    const uint64_t *host_remote_ns;      /* [R] time of the call, both ways included */
    /* [R] the part of host_remote_ns that counts once, however many items of the step the server
     * computes: the way to the server, and all that the server does side by side. */
    const uint64_t *host_once_ns;
    /* Only with several GPUs; null with one. */
    const uint64_t *host_device_backlog_ns; /* [gpus] load_backlog_ns of each */
    const uint64_t *host_device_once_ns;    /* [gpus] hidden states there and back, once a step
                                             * if the device computes anything; 0 for the first
                                             * GPU */
} moorage_items;
MOORAGE_ASSERT(offsetof(moorage_items, host_experts) == 48, "moorage_items layout");
MOORAGE_ASSERT(sizeof(moorage_items) == 160, "moorage_items layout");

/* The measured times of one item. */
typedef struct moorage_dispatched {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layer;
    uint32_t expert;
    uint32_t device;
    uint32_t tokens;
    uint64_t load_ns; /* transfer without waiting; 0: no transfer */
    uint64_t run_ns;  /* computation without waiting. For a server: the whole call, with network
                       * time, waiting and the other items of the call */
} moorage_dispatched;
MOORAGE_ASSERT(sizeof(moorage_dispatched) == 40, "moorage_dispatched layout");

#define MOORAGE_INTERFACE_DISPATCH "moorage.dispatch/1"
typedef struct moorage_dispatch {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Fills host_devices with a device per item. It comes filled with the item's own device. If an
     * item cannot run there, it comes filled with the server that takes least time. Fills
     * host_order with the items in the order in which each device takes them. It comes filled with
     * 0, 1, 2, ... Returns count, or 0 to keep both arrays as they came. Required. [step] */
    uint32_t (*assign)(moorage_plugin *plugin, const moorage_step *step, const moorage_items *items,
                       uint32_t *host_devices, uint32_t *host_order);
    /* Called once per item after the step. May be null. [step] */
    void (*outcome)(moorage_plugin *plugin, const moorage_dispatched *outcome);
} moorage_dispatch;
MOORAGE_ASSERT(sizeof(moorage_dispatch) == 24, "moorage_dispatch layout");

#ifdef __cplusplus
}
#endif
#endif

/* prefetch.h - interface moorage.prefetch/1: what to bring before it is asked for.
 *
 * Called as soon as the demand of a layer is queued. What arrives waits in the transfer buffer, so
 * a prefetch evicts nothing; when the true routing asks for it, it moves into the cache without a
 * copy. What the routing did not ask for is cut off or dropped, and its bytes count as wasted. An
 * order may name another place instead: a slot of the cache, or host memory.
 */
#ifndef MOORAGE_PREFETCH_H
#define MOORAGE_PREFETCH_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Predicted experts of the layers to come: target i is layer host_layers[i], and its experts, best
 * first, are host_experts[host_offsets[i]] up to host_experts[host_offsets[i + 1]]. */
typedef struct moorage_forecast {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t target_count;
    uint32_t buffer_free;         /* experts that the transfer buffer can take until target 0 is
                                   * routed; the running step may hold part of it for now */
    uint64_t window_ns;           /* expected time until target 0 is routed */
    uint64_t backlog_ns;          /* of it, the link is busy this long with demand loads */
    const uint32_t *host_layers;  /* [target_count] nearest first */
    const uint32_t *host_offsets; /* [target_count + 1] */
    const uint32_t *host_experts;
    const float *host_scores; /* probability or score of each, or null */
    /* Target 0 token by token, where the source predicted it: [token_count, token_predictions],
     * best first; MOORAGE_NONE ends a token's list early. Null: not known. Of one token they are
     * target 0's list itself. */
    uint32_t token_count;
    uint32_t token_predictions;
    const uint32_t *host_token_experts;
    const float *host_token_scores; /* their gate scores, or null: only their order is known */
} moorage_forecast;
MOORAGE_ASSERT(sizeof(moorage_forecast) == 88, "moorage_forecast layout");

/* Where what is ordered is to lie. SLOT: in the cache, which the cache policy is asked to make room
 * for; it is there for later steps too, and arrives behind all demand, as what dispatch has loaded
 * besides. Without effect where no room is made, or too many such loads are under way. HOST: read
 * from disk to host memory, whose cache policy is asked likewise; without effect where host memory
 * has everything. */
enum { MOORAGE_PLACE_BUFFER = 0, MOORAGE_PLACE_SLOT = 1, MOORAGE_PLACE_HOST = 2 };

/* Orders, first to go first; arrays are the host's. Pages that are resident, in flight or in
 * use by the running step are skipped without fault; those beyond the buffer's room wait for it
 * until their layer is routed. */
enum {
    /* The layer of target 0 waits until all that was ordered for it has arrived, chosen or not:
     * nothing of it is cut off. So a layer is streamed as a whole. */
    MOORAGE_ORDERS_COMPLETE = 1
};
typedef struct moorage_orders {
    uint32_t size;
    uint32_t flags; /* MOORAGE_ORDERS_*, the policy's to set; comes as 0 */
    uint32_t capacity;
    uint32_t reserved;      /* 0 */
    uint32_t *host_pages;   /* [capacity] */
    uint8_t *host_segments; /* [capacity] mask, for the buffer; comes filled with MOORAGE_WHOLE */
    uint8_t *host_places;   /* [capacity] MOORAGE_PLACE_*; comes filled with MOORAGE_PLACE_BUFFER */
    uint8_t *host_versions; /* [capacity] comes filled with 0, and has to stay so: orders bring
                             * the first */
} moorage_orders;
MOORAGE_ASSERT(sizeof(moorage_orders) == 48, "moorage_orders layout");

/* What became of the prefetches of a layer whose true routing is now known. */
typedef struct moorage_prefetch_outcome {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layer;
    uint32_t used;         /* experts asked for that had arrived */
    uint32_t late;         /* asked for while still in flight */
    uint32_t wasted;       /* arrived and not asked for */
    uint32_t cut_off;      /* not asked for, cancelled before arriving */
    uint32_t reserved;     /* 0 */
    uint64_t wasted_bytes; /* moved for nothing, cut-off parts included */
} moorage_prefetch_outcome;
MOORAGE_ASSERT(sizeof(moorage_prefetch_outcome) == 40, "moorage_prefetch_outcome layout");

/* What the source is to predict the next layer's routing from. A trace has what was recorded. */
enum {
    MOORAGE_FROM_ACTIVATION = 0, /* the next gate on this layer's input of the experts */
    MOORAGE_FROM_RESIDENT = 1 /* shared and resident experts, the next attention, the next gate */
};

#define MOORAGE_INTERFACE_PREFETCH "moorage.prefetch/1"
typedef struct moorage_prefetch {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Layers ahead to forecast, 1 .. layers; null or 0: none, plan is never called. [control] */
    uint32_t (*horizon)(moorage_plugin *plugin);
    /* The policy's own prediction for `layer`, `distance` visits ahead: fills both arrays, returns
     * how many. Null or 0: the source's (model's next router, trace's predictions). [step] */
    uint32_t (*predict)(moorage_plugin *plugin, const moorage_step *step, uint32_t layer,
                        uint32_t distance, uint32_t capacity, uint32_t *host_experts,
                        float *host_scores);
    /* Returns the number of orders. Required. [step] */
    uint32_t (*plan)(moorage_plugin *plugin, const moorage_step *step,
                     const moorage_forecast *forecast, moorage_orders *orders);
    /* May be null. [step] */
    void (*outcome)(moorage_plugin *plugin, const moorage_prefetch_outcome *outcome);
    /* MOORAGE_FROM_*; null: MOORAGE_FROM_ACTIVATION. [control] */
    uint32_t (*prediction)(moorage_plugin *plugin);
} moorage_prefetch;
MOORAGE_ASSERT(sizeof(moorage_prefetch) == 48, "moorage_prefetch layout");

#ifdef __cplusplus
}
#endif
#endif

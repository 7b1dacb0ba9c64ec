/* prefetch.h - interface moorage.prefetch/1: which experts to load before a step asks for them.
 *
 * Called as soon as the demand of a layer is queued. A prefetched expert waits in the transfer
 * buffer, so a prefetch evicts nothing. If the true routing asks for it, it moves into the cache
 * without a copy. If not, the load is cut off or the expert is dropped, and its bytes count as
 * wasted. An order may name another place than the buffer: a slot of the cache, or host memory.
 */
#ifndef MOORAGE_PREFETCH_H
#define MOORAGE_PREFETCH_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Predicted experts of the coming layers. Target i is layer host_layers[i]. Its experts, best
 * first, are host_experts[host_offsets[i]] up to host_experts[host_offsets[i + 1]]. */
typedef struct moorage_forecast {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t target_count;
    uint32_t buffer_free;         /* experts that the transfer buffer can take until target 0 is
                                   * routed; the running step may still hold a part of it */
    uint64_t window_ns;           /* expected time until target 0 is routed */
    uint64_t backlog_ns;          /* the part of it in which demand loads keep the link busy */
    const uint32_t *host_layers;  /* [target_count] nearest layer first */
    const uint32_t *host_offsets; /* [target_count + 1] */
    const uint32_t *host_experts;
    const float *host_scores; /* probability or score of each expert, or null */
    /* Target 0 token by token, if the source predicted it so: [token_count, token_predictions],
     * best first. MOORAGE_NONE ends a token's list early. Null: not known. With one token it is the
     * list of target 0 itself. */
    uint32_t token_count;
    uint32_t token_predictions;
    const uint32_t *host_token_experts;
    const float *host_token_scores; /* their gate scores; null: only the order is known */
} moorage_forecast;
MOORAGE_ASSERT(sizeof(moorage_forecast) == 88, "moorage_forecast layout");

/* The place that an order loads into.
 * SLOT: a slot of the cache. The host asks the cache policy for room. The expert stays for later
 * steps. It arrives after all demand, like loads of MOORAGE_AND_LOAD (dispatch.h). The order has no
 * effect if the cache makes no room or too many such loads are under way.
 * HOST: host memory, read from disk. The host asks host memory's cache policy for room. The order
 * has no effect if host memory has everything. */
enum { MOORAGE_PLACE_BUFFER = 0, MOORAGE_PLACE_SLOT = 1, MOORAGE_PLACE_HOST = 2 };

/* Orders, the first one first, in the host's arrays. Pages that are resident, in flight or used by
 * the running step are skipped. That is no fault. Orders beyond the buffer's room wait for room
 * until their layer is routed. */
enum {
    /* The layer of target 0 waits until all orders for it have arrived, chosen or not. None of them
     * is cut off. So a layer is streamed as a whole. */
    MOORAGE_ORDERS_COMPLETE = 1
};
typedef struct moorage_orders {
    uint32_t size;
    uint32_t flags; /* MOORAGE_ORDERS_*, set by the policy; comes as 0 */
    uint32_t capacity;
    uint32_t reserved;      /* 0 */
    uint32_t *host_pages;   /* [capacity] */
    uint8_t *host_segments; /* [capacity] mask, for PLACE_BUFFER; comes filled with MOORAGE_WHOLE */
    uint8_t *host_places;   /* [capacity] MOORAGE_PLACE_*; comes filled with MOORAGE_PLACE_BUFFER */
    uint8_t *host_versions; /* [capacity] comes filled with 0 and must stay 0: orders load the
                             * first version */
} moorage_orders;
MOORAGE_ASSERT(sizeof(moorage_orders) == 48, "moorage_orders layout");

/* The fate of the prefetches of a layer, once its true routing is known. */
typedef struct moorage_prefetch_outcome {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layer;
    uint32_t used;         /* experts that were asked for and had arrived */
    uint32_t late;         /* experts that were asked for while in flight */
    uint32_t wasted;       /* experts that arrived and were not asked for */
    uint32_t cut_off;      /* experts that were not asked for and were cancelled before arriving */
    uint32_t reserved;     /* 0 */
    uint64_t wasted_bytes; /* moved for nothing, cut-off parts included */
} moorage_prefetch_outcome;
MOORAGE_ASSERT(sizeof(moorage_prefetch_outcome) == 40, "moorage_prefetch_outcome layout");

/* The input from which the source predicts the next layer's routing. A trace has recorded
 * predictions. */
enum {
    MOORAGE_FROM_ACTIVATION = 0, /* the next gate, applied to the input of this layer's experts */
    MOORAGE_FROM_RESIDENT = 1    /* shared and resident experts, next attention, next gate */
};

#define MOORAGE_INTERFACE_PREFETCH "moorage.prefetch/1"
typedef struct moorage_prefetch {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Layers ahead to forecast, 1 .. layers. Null or 0: none, and plan is never called.
     * [control] */
    uint32_t (*horizon)(moorage_plugin *plugin);
    /* The policy's own prediction for `layer`, `distance` visits ahead. Fills both arrays and
     * returns the number of experts. Null or 0: the source predicts (model's next router, trace's
     * predictions). [step] */
    uint32_t (*predict)(moorage_plugin *plugin, const moorage_step *step, uint32_t layer,
                        uint32_t distance, uint32_t capacity, uint32_t *host_experts,
                        float *host_scores);
    /* Fills `orders` and returns their number. Required. [step] */
    uint32_t (*plan)(moorage_plugin *plugin, const moorage_step *step,
                     const moorage_forecast *forecast, moorage_orders *orders);
    /* May be null. [step] */
    void (*outcome)(moorage_plugin *plugin, const moorage_prefetch_outcome *outcome);
    /* Returns MOORAGE_FROM_*. Null: MOORAGE_FROM_ACTIVATION. [control] */
    uint32_t (*prediction)(moorage_plugin *plugin);
} moorage_prefetch;
MOORAGE_ASSERT(sizeof(moorage_prefetch) == 48, "moorage_prefetch layout");

#ifdef __cplusplus
}
#endif
#endif

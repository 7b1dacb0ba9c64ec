/* step.h - one layer step: what was asked of a layer, by whom, and what the router chose.
 *
 * Interface moorage.observer/1 is offered by a policy of any kind that learns from steps. The host
 * calls it once per instance and step, however many stages the instance serves: after the router's
 * choice and the pinning of its experts, before anything of this step is evicted or loaded. So the
 * residency view shows the hit state before the step.
 */
#ifndef MOORAGE_STEP_H
#define MOORAGE_STEP_H

#include "module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Class of a chosen expert, by the router. One that is DROPPED is neither brought nor computed for
 * its token, and among the distinct only where another token chose it. One that is SMALL (minor
 * version 1) may be brought and computed in its second version, where stores hold two; it is
 * computed in the first all the same if that is there, or another token asks for it. */
enum {
    MOORAGE_CLASS_TOP = 0,
    MOORAGE_CLASS_LOW = 1,
    MOORAGE_CLASS_SUBSTITUTE = 2,
    MOORAGE_CLASS_DROPPED = 3,
    MOORAGE_CLASS_SMALL = 4
};

/* Arrays are borrowed for the call. B tokens, k = top_k, E = experts, D = distinct_count. */
typedef struct moorage_step {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint64_t index; /* running number of steps, from 0 */
    uint64_t visit; /* running number of layer visits: visit mod layers = layer.
                     * Several steps share a visit only in `serial` replay */
    uint64_t token; /* tokens completed before this step's */
    uint32_t layer;
    int32_t phase;                 /* MOORAGE_PREFILL, MOORAGE_DECODE, ... */
    uint32_t token_count;          /* B */
    uint32_t top_k;                /* k; 1 where a replay hands out experts one by one */
    uint32_t experts;              /* E */
    uint32_t distinct_count;       /* D */
    uint32_t prediction_count;     /* P: experts that were predicted for this layer;
                                    * merged over the tokens by best score, ties smaller id */
    uint32_t hidden_size;          /* limits.hidden_size where host_hidden is there; 0 */
    const uint32_t *host_streams;  /* [B] stream of each token, below limits.requests_max */
    const uint64_t *host_requests; /* [B] running number of the request of each token */
    const uint32_t *host_chosen;   /* [B, k] experts, best first: the model's own choice for a
                                    * router, the router's choice for everyone else */
    const float *host_weights;     /* [B, k] their router weights, or null */
    const uint8_t *host_classes;   /* [B, k] MOORAGE_CLASS_*, or null: all top */
    const float *host_gate_scores; /* [B, E] probability of every expert, or null */
    const uint32_t *host_distinct; /* [D] distinct chosen experts, in order of first appearance;
                                    * null for a router */
    const uint32_t *host_distinct_tokens; /* [D] tokens that chose each; null: one each */
    const float *host_distinct_scores;    /* [D] largest gate score or weight of each, or null */
    const uint32_t *host_predicted; /* [P] predicted for this layer by the prefetch stage, best
                                     * first, or null */
    const int32_t *host_token_ids;  /* [B] of the model's vocabulary; null: the source has none */
    const uint32_t *host_positions; /* [B] place in its request, from 0; or null */
    const float *host_hidden; /* [B, hidden_size] what the router saw, or null: for policies with
                               * MOORAGE_POLICY_HIDDEN, where this machine computes */
} moorage_step;
MOORAGE_ASSERT(offsetof(moorage_step, layer) == 32, "moorage_step layout");
MOORAGE_ASSERT(offsetof(moorage_step, host_streams) == 64, "moorage_step layout");
MOORAGE_ASSERT(sizeof(moorage_step) == 168, "moorage_step layout");

#define MOORAGE_INTERFACE_OBSERVER "moorage.observer/1"
typedef struct moorage_observer {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Sees the whole chosen set, hits and misses alike. [step] */
    void (*observe)(moorage_plugin *plugin, const moorage_step *step);
} moorage_observer;
MOORAGE_ASSERT(sizeof(moorage_observer) == 16, "moorage_observer layout");

#ifdef __cplusplus
}
#endif
#endif

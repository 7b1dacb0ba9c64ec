/* step.h - one layer step: its tokens, their requests, and the experts that the router chose.
 *
 * A policy of any kind that learns from steps offers interface moorage.observer/1. The host calls
 * it once per instance and step, however many stages the instance serves. The call comes after the
 * router has chosen and the chosen experts are pinned. It comes before any eviction or load of this
 * step. So the residency view shows the state before the step.
 */
#ifndef MOORAGE_STEP_H
#define MOORAGE_STEP_H

#include "module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Class of a chosen expert, set by the router. A DROPPED expert is neither loaded nor computed for
 * its token. It is among the distinct experts only if another token chose it. A SMALL expert (minor
 * version 1) may be loaded and computed in its second version, if stores hold two. The first
 * version is computed if it is resident or if another token asks for it. */
enum {
    MOORAGE_CLASS_TOP = 0,
    MOORAGE_CLASS_LOW = 1,
    MOORAGE_CLASS_SUBSTITUTE = 2,
    MOORAGE_CLASS_DROPPED = 3,
    MOORAGE_CLASS_SMALL = 4
};

/* Arrays are lent for the call. B tokens, k = top_k, E = experts, D = distinct_count. */
typedef struct moorage_step {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint64_t index; /* running number of steps, from 0 */
    uint64_t visit; /* running number of layer visits: visit mod layers = layer. Several steps
                     * share a visit only in `serial` replay */
    uint64_t token; /* tokens completed before those of this step */
    uint32_t layer;
    int32_t phase;                 /* MOORAGE_PREFILL, MOORAGE_DECODE, ... */
    uint32_t token_count;          /* B */
    uint32_t top_k;                /* k; 1 if a replay hands out experts one by one */
    uint32_t experts;              /* E */
    uint32_t distinct_count;       /* D */
    uint32_t prediction_count;     /* P: experts that were predicted for this layer; merged over
                                    * the tokens by best score, ties by smaller id */
    uint32_t hidden_size;          /* limits.hidden_size if host_hidden is there, else 0 */
    const uint32_t *host_streams;  /* [B] stream of each token, below limits.requests_max */
    const uint64_t *host_requests; /* [B] running number of each token's request */
    const uint32_t *host_chosen;   /* [B, k] experts, best first. A router sees the model's own
                                    * choice; all others see the router's choice */
    const float *host_weights;     /* [B, k] their router weights, or null */
    const uint8_t *host_classes;   /* [B, k] MOORAGE_CLASS_*; null: all TOP */
    const float *host_gate_scores; /* [B, E] probability of every expert, or null */
    const uint32_t *host_distinct; /* [D] distinct chosen experts, in order of first appearance;
                                    * null for a router */
    const uint32_t *host_distinct_tokens; /* [D] tokens that chose each; null: one each */
    const float *host_distinct_scores;    /* [D] largest gate score or weight of each, or null */
    const uint32_t *host_predicted; /* [P] predicted for this layer by the prefetch stage, best
                                     * first; or null */
    const int32_t *host_token_ids;  /* [B] ids in the model's vocabulary; null: the source has
                                     * none */
    const uint32_t *host_positions; /* [B] position in the request, from 0; or null */
    const float *host_hidden; /* [B, hidden_size] the router's input, or null. Only for policies
                               * with MOORAGE_POLICY_HIDDEN, and only if this machine computes */
} moorage_step;
MOORAGE_ASSERT(offsetof(moorage_step, layer) == 32, "moorage_step layout");
MOORAGE_ASSERT(offsetof(moorage_step, host_streams) == 64, "moorage_step layout");
MOORAGE_ASSERT(sizeof(moorage_step) == 168, "moorage_step layout");

#define MOORAGE_INTERFACE_OBSERVER "moorage.observer/1"
typedef struct moorage_observer {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Receives the whole chosen set, hits and misses alike. Required. [step] */
    void (*observe)(moorage_plugin *plugin, const moorage_step *step);
} moorage_observer;
MOORAGE_ASSERT(sizeof(moorage_observer) == 16, "moorage_observer layout");

#ifdef __cplusplus
}
#endif
#endif

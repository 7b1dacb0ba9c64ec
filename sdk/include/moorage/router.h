/* router.h - interface moorage.router/1: which experts serve a token, and with what weights.
 *
 * The step's host_chosen holds the model's own choice; a router that only repeats it is lossless.
 * One that may choose otherwise says so with MOORAGE_POLICY_LOSSY, and what it changed is counted.
 */
#ifndef MOORAGE_ROUTER_H
#define MOORAGE_ROUTER_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* The weights of a token that had experts dropped are scaled, so that their sum is what that of
     * all would have been. Without it, what was dropped is missing from the sum. */
    MOORAGE_ROUTE_RENORMALISE = 1u
};

/* Result; every array is the host's, B tokens by k = step->top_k. Experts of a token must be
 * distinct and below step->experts. Weights come filled with NaN; where NaN stays, the host applies
 * the model's own rule to the chosen experts. Classes come filled with MOORAGE_CLASS_TOP. To use
 * fewer than k, a router gives the others the class MOORAGE_CLASS_DROPPED, at least one apart; each
 * counts as substituted. So does each that it gives MOORAGE_CLASS_SMALL, where experts have two
 * versions; what is whole in the first one had better stay TOP, as it is computed in that. */
typedef struct moorage_route {
    uint32_t size;
    uint32_t flags;         /* MOORAGE_ROUTE_*, the policy's to set; comes as 0 */
    uint32_t *host_experts; /* [B, k] best first */
    float *host_weights;    /* [B, k] */
    uint8_t *host_classes;  /* [B, k] MOORAGE_CLASS_* */
} moorage_route;
MOORAGE_ASSERT(sizeof(moorage_route) == 32, "moorage_route layout");

#define MOORAGE_INTERFACE_ROUTER "moorage.router/1"
typedef struct moorage_router {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Routes all B tokens of the step. Returns B, or 0: the model's own choice stands. Sees the
     * residency of every page, arrived prefetches included. Required. [step] */
    uint32_t (*select)(moorage_plugin *plugin, const moorage_step *step, moorage_route *route);
} moorage_router;
MOORAGE_ASSERT(sizeof(moorage_router) == 16, "moorage_router layout");

#ifdef __cplusplus
}
#endif
#endif

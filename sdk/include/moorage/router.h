/* router.h - interface moorage.router/1: which experts serve a token, and with what weights.
 *
 * host_chosen of the step holds the model's own choice. A router that only repeats it is lossless.
 * A router that may choose otherwise sets MOORAGE_POLICY_LOSSY. The host counts what it changed.
 */
#ifndef MOORAGE_ROUTER_H
#define MOORAGE_ROUTER_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Scales the weights of a token that had experts dropped. Their sum is then what the sum of all
     * weights would have been. Without this flag the sum lacks the dropped weights. */
    MOORAGE_ROUTE_RENORMALISE = 1u
};

/* Result. The host owns every array; B tokens by k = step->top_k. The experts of a token must be
 * distinct and below step->experts. Weights come filled with NaN. Where NaN stays, the host applies
 * the model's own rule to the chosen experts. Classes come filled with MOORAGE_CLASS_TOP.
 * To use fewer than k experts, give the others the class MOORAGE_CLASS_DROPPED. At least one must
 * stay. Each dropped expert counts as substituted. So does each expert of class
 * MOORAGE_CLASS_SMALL, if experts have two versions. Leave an expert TOP if all of its first
 * version is resident, because that version is computed anyway. */
typedef struct moorage_route {
    uint32_t size;
    uint32_t flags;         /* MOORAGE_ROUTE_*, set by the policy; comes as 0 */
    uint32_t *host_experts; /* [B, k] best first */
    float *host_weights;    /* [B, k] */
    uint8_t *host_classes;  /* [B, k] MOORAGE_CLASS_* */
} moorage_route;
MOORAGE_ASSERT(sizeof(moorage_route) == 32, "moorage_route layout");

#define MOORAGE_INTERFACE_ROUTER "moorage.router/1"
typedef struct moorage_router {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Routes all B tokens of the step. Returns B, or 0 to keep the model's own choice. The
     * residency of every page is visible, arrived prefetches included. Required. [step] */
    uint32_t (*select)(moorage_plugin *plugin, const moorage_step *step, moorage_route *route);
} moorage_router;
MOORAGE_ASSERT(sizeof(moorage_router) == 16, "moorage_router layout");

#ifdef __cplusplus
}
#endif
#endif

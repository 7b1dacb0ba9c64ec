/* budget.h - interface moorage.budget/1: how many slots each layer gets, and how its experts split.
 *
 * Asked before the run and then every `interval` tokens, between tokens, when the caches are per
 * layer. A policy that waits for an idle moment returns 0 and an interval of 1 until it has come.
 * The host applies the difference: a layer that shrinks evicts through its cache policy; where a
 * split changes, all caches are emptied and filled anew (moorage_cache.fill), and the run goes on
 * when that is done.
 */
#ifndef MOORAGE_BUDGET_H
#define MOORAGE_BUDGET_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moorage_budget_request {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint32_t layers;
    uint32_t experts;           /* of a layer: more slots than this are of no use */
    uint32_t slots;             /* whole experts that fit in all layers together */
    uint32_t segments;          /* 1: splits stay as they are; more: they may be chosen */
    uint64_t token;             /* tokens completed */
    const uint32_t *host_slots; /* [layers] now; all 0 before the run */
    const float *host_split;    /* [layers] now */
    uint32_t idle;              /* 1: no request is under way, so a change delays nobody */
    float split_step; /* a split is rounded down to a multiple of it, 1 excepted; the smallest
                       * split is one step. 0: no rounding */
} moorage_budget_request;
MOORAGE_ASSERT(sizeof(moorage_budget_request) == 56, "moorage_budget_request layout");

/* Result, the host's arrays. A layer with `slots` and `split` costs slots * split whole experts;
 * the sum over the layers must not exceed request->slots (by more than 1e-4 of an expert, for
 * rounding). Both come filled with what is in force. */
typedef struct moorage_budget_plan {
    uint32_t size;
    uint32_t flags;       /* 0 */
    uint32_t *host_slots; /* [layers] 0 .. experts */
    float *host_split;    /* [layers] (0, 1]; the first segment's share, 1: not split */
    double gain_ns;       /* expected gain per token over what is in force; 0: unknown */
} moorage_budget_plan;
MOORAGE_ASSERT(sizeof(moorage_budget_plan) == 32, "moorage_budget_plan layout");

#define MOORAGE_INTERFACE_BUDGET "moorage.budget/1"
typedef struct moorage_budget {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Returns 1 when the plan is to be applied, 0 to leave all as it is. Required. [control] */
    uint32_t (*plan)(moorage_plugin *plugin, const moorage_budget_request *request,
                     moorage_budget_plan *plan);
    /* Tokens between two calls of plan; null or 0: only before the run. [control] */
    uint64_t (*interval)(moorage_plugin *plugin);
} moorage_budget;
MOORAGE_ASSERT(sizeof(moorage_budget) == 24, "moorage_budget layout");

#ifdef __cplusplus
}
#endif
#endif

/* budget.h - interface moorage.budget/1: the slots of each layer, and how its experts are split.
 *
 * The host asks before the run, and then every `interval` tokens, between tokens. It asks only if
 * the caches are per layer. A policy that waits for an idle moment returns 0 and an interval of 1
 * until that moment comes. The host applies the difference. A layer that shrinks evicts through its
 * cache policy. If a split changes, the host empties all caches and fills them anew
 * (moorage_cache.fill). The run continues after that.
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
    uint32_t experts;           /* per layer; more slots than this are of no use */
    uint32_t slots;             /* whole experts that fit in all layers together */
    uint32_t segments;          /* 1: splits stay as they are; more: the policy may choose them */
    uint64_t token;             /* tokens completed */
    const uint32_t *host_slots; /* [layers] slots in force; all 0 before the run */
    const float *host_split;    /* [layers] splits in force */
    uint32_t idle;              /* 1: no request is running, so a change delays none */
    float split_step; /* the host rounds a split down to a multiple of this, except a split of 1;
                       * the smallest split is one step. 0: no rounding */
} moorage_budget_request;
MOORAGE_ASSERT(sizeof(moorage_budget_request) == 56, "moorage_budget_request layout");

/* Result, in the host's arrays. A layer with `slots` and `split` costs slots * split whole experts.
 * The sum over the layers must not exceed request->slots. Rounding may add up to 1e-4 of an expert.
 * Both arrays come filled with the values in force. */
typedef struct moorage_budget_plan {
    uint32_t size;
    uint32_t flags;       /* 0 */
    uint32_t *host_slots; /* [layers] 0 .. experts */
    float *host_split;    /* [layers] (0, 1]; the first segment's share, 1: not split */
    double gain_ns;       /* expected gain per token over the plan in force; 0: unknown */
} moorage_budget_plan;
MOORAGE_ASSERT(sizeof(moorage_budget_plan) == 32, "moorage_budget_plan layout");

#define MOORAGE_INTERFACE_BUDGET "moorage.budget/1"
typedef struct moorage_budget {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Returns 1 to apply the plan, 0 to change nothing. Required. [control] */
    uint32_t (*plan)(moorage_plugin *plugin, const moorage_budget_request *request,
                     moorage_budget_plan *plan);
    /* Tokens between two calls of plan. Null or 0: plan is only called before the run. [control] */
    uint64_t (*interval)(moorage_plugin *plugin);
} moorage_budget;
MOORAGE_ASSERT(sizeof(moorage_budget) == 24, "moorage_budget layout");

#ifdef __cplusplus
}
#endif
#endif

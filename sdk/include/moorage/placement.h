/* placement.h - interface moorage.placement/1: which device holds a copy of which expert.
 *
 * All calls are [control]: planning may allocate and take as long as it needs. Servers have
 * devices. Tokens come from homes. A home is a server, or a user. A user reaches the network
 * through one server and may hold experts itself. If there is a cloud, it holds every expert.
 *
 * Plans and statistics are plain arrays. Matrices are row-major: [H, X] is X values of home 0, then
 * X values of home 1. Rates are bytes per second, times are seconds. `sdk/latency` has the shared
 * model of a layer's latency, so a policy needs no model of its own.
 */
#ifndef MOORAGE_PLACEMENT_H
#define MOORAGE_PLACEMENT_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a cluster: how a home waits for the servers that it calls in one layer. */
enum {
    /* A home calls one server after another, the cloud last (SlimCaching, Eq. 7 and 11). Without it
     * a home calls all servers at once, and the layer waits for the slowest (Prism, Eq. 1). Real
     * nodes call all at once. */
    MOORAGE_CALLS_SERIAL = 1u,
    /* A server returns the outputs of its experts one by one (SlimCaching, Eq. 7). Real nodes do
     * so. Without it a server returns their weighted sum: one hidden state a token. */
    MOORAGE_RETURNS_EACH = 2u,
    /* The links of a server share its interface. One message at a time leaves it and one arrives,
     * each at the rate of its link. Without it the links are independent. */
    MOORAGE_LINKS_SHARED = 4u
};

/* The servers and their links. N servers, G devices in all, H homes, M models. */
typedef struct moorage_cluster {
    uint32_t size;
    uint32_t flags;                             /* MOORAGE_CALLS_*, RETURNS_*, LINKS_* */
    uint32_t servers;                           /* N, 1 or more */
    uint32_t devices;                           /* G */
    uint32_t homes;                             /* H */
    uint32_t models;                            /* M, 1 or more */
    const uint32_t *host_device_server;         /* [G] server of each device, ascending */
    const uint64_t *host_device_bytes;          /* [G] memory for experts */
    const double *host_device_load_bytes_per_s; /* [G] rate at which experts are written into it */
    const double *host_device_call_s;           /* [G, M] time of one expert for one token */
    const double *host_device_token_s;          /* [G, M] time of each further token of the same
                                                 * call */
    const double *host_link_bytes_per_s;        /* [N, N] from server, to server; 0: no link */
    const double *host_link_s;                  /* [N, N] latency of a message, without its bytes */
    /* The cloud. Null in all fields if there is none; then every expert needs a copy. */
    const double *host_cloud_up_bytes_per_s;   /* [N] server to cloud; may be infinite */
    const double *host_cloud_down_bytes_per_s; /* [N] */
    const double *host_cloud_s;                /* [N] latency each way */
    const double *host_cloud_call_s;           /* [M] time of one expert for one token */
    const uint32_t *host_home_server;          /* [H] the server that is the home, or through
                                                * which the home enters */
    /* [H] between a home and its server. Infinite if the home is the server. */
    const double *host_home_up_bytes_per_s;
    const double *host_home_down_bytes_per_s;
    const double *host_home_call_s; /* [H, M] time of one token through all chosen experts of a
                                     * layer, if the home holds them all */
} moorage_cluster;
MOORAGE_ASSERT(offsetof(moorage_cluster, host_device_server) == 24, "moorage_cluster layout");
MOORAGE_ASSERT(sizeof(moorage_cluster) == 144, "moorage_cluster layout");

/* The demand for experts. Experts of all models have consecutive numbers. Expert e of layer l of
 * model m has the number first[m] + l * experts[m] + e, below X = first[M]. */
typedef struct moorage_demand {
    uint32_t size;
    uint32_t flags;                       /* 0 */
    uint32_t models;                      /* M */
    uint32_t homes;                       /* H */
    const uint32_t *host_model_first;     /* [M + 1] */
    const uint32_t *host_model_layers;    /* [M] MoE layers */
    const uint32_t *host_model_experts;   /* [M] of each layer */
    const uint32_t *host_model_top_k;     /* [M] */
    const uint32_t *host_model_groups;    /* [M] groups to which the router limits tokens; 1: none.
                                           * Group g is experts [g * E / groups, (g + 1) * ...) */
    const uint64_t *host_expert_bytes;    /* [M] of one expert */
    const uint64_t *host_hidden_bytes;    /* [M] of one token's hidden state, each way */
    const double *host_home_tokens_per_s; /* [H] */
    const double *host_home_batch;        /* [H] mean number of tokens that pass a layer
                                           * together, >= 1 */
    const double *host_home_model;        /* [H, M] share of the home's tokens; a row sums to 1,
                                           * or to 0 */
    /* [H, X] share of the home's tokens, of any model, that choose the expert: 0 .. 1. */
    const double *host_frequency;
    /* Sets of experts that one token chooses together in a layer, if they are known. The calls of
     * home h are [first[h], first[h + 1]) of two arrays: the group, and its share of the home's
     * tokens. The frequencies are the sums over the calls. */
    uint64_t calls;                       /* C; 0: only frequencies are known */
    const uint64_t *host_home_first_call; /* [H + 1] */
    const uint32_t *host_call_group;      /* [C] */
    const double *host_call_share;        /* [C] */
    uint64_t groups;                      /* Y */
    const uint64_t *host_group_first;     /* [Y + 1] into host_group_experts */
    const uint32_t *host_group_experts;   /* expert numbers of one layer, ascending within a
                                           * group */
    const uint8_t *host_home_holds;       /* [H, X] 1: the home has the expert itself; null: no
                                           * home does */
    double window_s;                      /* time that the statistics cover; 0: unknown */
    /* [H] share of passes that have one token, as each output token does. The other passes are
     * prompts; they make up the mean of host_home_batch. Null: all passes are alike. */
    const double *host_home_single_share;
} moorage_demand;
MOORAGE_ASSERT(offsetof(moorage_demand, host_model_first) == 16, "moorage_demand layout");
MOORAGE_ASSERT(sizeof(moorage_demand) == 184, "moorage_demand layout");

/* One copy of an expert on a device. */
typedef struct moorage_copy {
    uint32_t expert; /* number, below X */
    uint32_t device; /* below G */
} moorage_copy;
MOORAGE_ASSERT(sizeof(moorage_copy) == 8, "moorage_copy layout");

/* Costs and gains of a change of plan, by the statistics of the window. */
typedef struct moorage_move {
    uint32_t size;
    uint32_t flags; /* 0 */
    const moorage_cluster *host_cluster;
    const moorage_demand *host_demand;
    const moorage_copy *host_current;
    uint64_t current_count;
    const moorage_copy *host_candidate;
    uint64_t candidate_count;
    uint64_t added_copies;
    uint64_t added_bytes;
    uint64_t removed_copies;
    double added_s;              /* sum over added copies: bytes / the device's load rate */
    double removed_s;            /* the same over removed copies (Prism, Eq. 3, counts both) */
    double remote_per_s_current; /* expected remote expert calls (Prism, Eq. 2) */
    double remote_per_s_candidate;
    double remote_call_s; /* measured mean time that one adds to a layer; 0: not measured yet */
    double interval_s;    /* until the next decision */
} moorage_move;
MOORAGE_ASSERT(sizeof(moorage_move) == 128, "moorage_move layout");

#define MOORAGE_INTERFACE_PLACEMENT "moorage.placement/1"
typedef struct moorage_placement {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Fills `host_copies`, the host's array with room for X * G copies, and their number.
     * host_current is the plan in force; its count is 0 before the first plan. No device may exceed
     * its memory, and no copy may occur twice. Without a cloud every expert of a requested model
     * needs a copy. If no plan exists: MOORAGE_INVALID_ARGUMENT with a text (set_error). Required.
     * [control] */
    int32_t (*plan)(moorage_plugin *plugin, const moorage_cluster *cluster,
                    const moorage_demand *demand, const moorage_copy *host_current,
                    uint64_t current_count, moorage_copy *host_copies, uint64_t *host_count);
    /* 1: the candidate pays for its migration. Null: the host applies Prism's Eq. 4. [control] */
    uint32_t (*adopt)(moorage_plugin *plugin, const moorage_move *move);
} moorage_placement;
MOORAGE_ASSERT(sizeof(moorage_placement) == 24, "moorage_placement layout");

#ifdef __cplusplus
}
#endif
#endif

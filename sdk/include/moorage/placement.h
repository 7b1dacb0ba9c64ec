/* placement.h - interface moorage.placement/1: which device holds a copy of which expert.
 *
 * Everything is [control]: planning may allocate and take as long as it needs. Servers have
 * devices; tokens come from homes. A home is a server, or a user that reaches the network through
 * one server and may hold experts itself. The cloud, where there is one, holds every expert.
 *
 * Plans and statistics are plain arrays. Matrices are row-major: [H, X] is X values of home 0, then
 * of home 1. Rates are bytes per second, times seconds. `sdk/latency` has the shared model of a
 * layer's latency, so a policy does not bring its own.
 */
#ifndef MOORAGE_PLACEMENT_H
#define MOORAGE_PLACEMENT_H

#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a cluster: how a home waits for the servers that it calls in one layer. */
enum {
    /* One server after another, the cloud last (SlimCaching, Eq. 7 and 11). Without it all are
     * called at once and the layer waits for the slowest (Prism, Eq. 1), as real nodes are. */
    MOORAGE_CALLS_SERIAL = 1u,
    /* A server returns the outputs of its experts one by one (SlimCaching, Eq. 7), as real nodes
     * do. Without it, it returns their weighted sum: one hidden state a token. */
    MOORAGE_RETURNS_EACH = 2u,
    /* Links of a server share its interface: of what it sends one message is under way at a time,
     * and of what it receives one, each at the rate of its link. Without it links are apart. */
    MOORAGE_LINKS_SHARED = 4u
};

/* The servers and what connects them. N servers, G devices in all, H homes, M models. */
typedef struct moorage_cluster {
    uint32_t size;
    uint32_t flags;                             /* MOORAGE_CALLS_*, RETURNS_*, LINKS_* */
    uint32_t servers;                           /* N, 1 or more */
    uint32_t devices;                           /* G */
    uint32_t homes;                             /* H */
    uint32_t models;                            /* M, 1 or more */
    const uint32_t *host_device_server;         /* [G] server of each device, ascending */
    const uint64_t *host_device_bytes;          /* [G] memory for experts */
    const double *host_device_load_bytes_per_s; /* [G] at which experts are written into it */
    const double *host_device_call_s;           /* [G, M] one expert for one token */
    const double *host_device_token_s;          /* [G, M] each further token of the same call */
    const double *host_link_bytes_per_s;        /* [N, N] from, to; 0: no link */
    const double *host_link_s;                  /* [N, N] latency of a message, its bytes apart */
    /* The cloud; all null where there is none, and then every expert needs a copy. */
    const double *host_cloud_up_bytes_per_s;   /* [N] server to cloud; may be infinite */
    const double *host_cloud_down_bytes_per_s; /* [N] */
    const double *host_cloud_s;                /* [N] latency each way */
    const double *host_cloud_call_s;           /* [M] one expert for one token */
    const uint32_t *host_home_server;          /* [H] the server that a home is, or enters by */
    /* [H] between a home and its server; infinite where the home is the server itself. */
    const double *host_home_up_bytes_per_s;
    const double *host_home_down_bytes_per_s;
    const double *host_home_call_s; /* [H, M] one token through all chosen experts of a layer, where
                                     * the home holds them all */
} moorage_cluster;
MOORAGE_ASSERT(offsetof(moorage_cluster, host_device_server) == 24, "moorage_cluster layout");
MOORAGE_ASSERT(sizeof(moorage_cluster) == 144, "moorage_cluster layout");

/* What is asked for. Experts of all models are numbered through: expert e of layer l of model m has
 * the number first[m] + l * experts[m] + e, below X = first[M]. */
typedef struct moorage_demand {
    uint32_t size;
    uint32_t flags;                       /* 0 */
    uint32_t models;                      /* M */
    uint32_t homes;                       /* H */
    const uint32_t *host_model_first;     /* [M + 1] */
    const uint32_t *host_model_layers;    /* [M] MoE layers */
    const uint32_t *host_model_experts;   /* [M] of each layer */
    const uint32_t *host_model_top_k;     /* [M] */
    const uint32_t *host_model_groups;    /* [M] groups that its router limits tokens to; 1 without.
                                           * Group g is experts [g * E / groups, (g + 1) * ...) */
    const uint64_t *host_expert_bytes;    /* [M] of one expert */
    const uint64_t *host_hidden_bytes;    /* [M] of one token's hidden state, each way */
    const double *host_home_tokens_per_s; /* [H] */
    const double *host_home_batch;        /* [H] tokens that pass a layer together, mean, >= 1 */
    const double *host_home_model;        /* [H, M] share of its tokens; a row sums to 1, or to 0 */
    /* [H, X] how often a token of the home, of any model, chooses the expert: 0 .. 1. */
    const double *host_frequency;
    /* Sets of experts that one token chooses together in a layer, where that is known. A home's
     * calls are [first[h], first[h + 1]) of two arrays: which group, and its share of the home's
     * tokens. Frequencies are the sums over them. */
    uint64_t calls;                       /* C; 0: only frequencies are known */
    const uint64_t *host_home_first_call; /* [H + 1] */
    const uint32_t *host_call_group;      /* [C] */
    const double *host_call_share;        /* [C] */
    uint64_t groups;                      /* Y */
    const uint64_t *host_group_first;     /* [Y + 1] into host_group_experts */
    const uint32_t *host_group_experts;   /* numbers, ascending within a group, of one layer */
    const uint8_t *host_home_holds;       /* [H, X] 1: the home has the expert itself; or null */
    double window_s;                      /* time that the statistics are of; 0: unknown */
    /* [H] share of its passes that are of one token, as each output token is; its other passes,
     * prompts, make up the mean of host_home_batch. Null: all passes are alike. */
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

/* What a change of plan costs and brings, under the statistics of the window. */
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
    double added_s;              /* sum over added copies of bytes over the device's load rate */
    double removed_s;            /* the same over removed copies (Prism, Eq. 3, counts both) */
    double remote_per_s_current; /* expected remote expert calls (Prism, Eq. 2) */
    double remote_per_s_candidate;
    double remote_call_s; /* measured mean of what one adds to a layer; 0: not measured yet */
    double interval_s;    /* until the next decision */
} moorage_move;
MOORAGE_ASSERT(sizeof(moorage_move) == 128, "moorage_move layout");

#define MOORAGE_INTERFACE_PLACEMENT "moorage.placement/1"
typedef struct moorage_placement {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Fills `host_copies` (host's, room for X * G) and their number. `current` is the plan in
     * force, of count 0 before the first. No device above its memory, no copy twice; without a
     * cloud every expert of a model that somebody asks for has a copy. Where no plan exists:
     * MOORAGE_INVALID_ARGUMENT with a text (set_error). Required. [control] */
    int32_t (*plan)(moorage_plugin *plugin, const moorage_cluster *cluster,
                    const moorage_demand *demand, const moorage_copy *host_current,
                    uint64_t current_count, moorage_copy *host_copies, uint64_t *host_count);
    /* 1: the candidate pays for its migration. Null: the host's rule, Prism's Eq. 4. [control] */
    uint32_t (*adopt)(moorage_plugin *plugin, const moorage_move *move);
} moorage_placement;
MOORAGE_ASSERT(sizeof(moorage_placement) == 24, "moorage_placement layout");

#ifdef __cplusplus
}
#endif
#endif

/* placement.h - DRAFT of interface moorage.placement/1: which server holds which expert.
 *
 * Draft: no policy of this version uses it, so layout and meaning may still change; the id will
 * not. Everything is [control]: planning may take as long as it needs. Statistics are plain arrays.
 */
#ifndef MOORAGE_DRAFT_PLACEMENT_H
#define MOORAGE_DRAFT_PLACEMENT_H

#include "../step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The servers and what connects them. N servers, G devices in all, U users, M models. */
typedef struct moorage_cluster {
    uint32_t size;
    uint32_t flags;                        /* 0 */
    uint32_t servers;                      /* N */
    uint32_t devices;                      /* G */
    uint32_t users;                        /* U; 0 where the servers themselves are the users */
    uint32_t models;                       /* M, 1 or more */
    const uint32_t *host_device_server;    /* [G] server of each device */
    const uint64_t *host_device_bytes;     /* [G] memory for experts */
    const double *host_device_flops;       /* [G] per second */
    const double *host_link_bytes_per_s;   /* [N, N] from, to; 0: no link */
    const uint64_t *host_link_latency_ns;  /* [N, N] */
    const double *host_up_bytes_per_s;     /* [U, N] user to server; 0: out of reach */
    const double *host_down_bytes_per_s;   /* [N, U] */
    const uint64_t *host_cloud_latency_ns; /* [N] each way */
    const double *host_user_flops;         /* [U] */
    double cloud_flops;
} moorage_cluster;

/* What is asked for. Experts are numbered over all models and layers: X of them. Groups are sets of
 * experts activated together; they are stored as offsets into one array. */
typedef struct moorage_demand {
    uint32_t size;
    uint32_t flags;                    /* 0 */
    uint32_t experts;                  /* X */
    uint32_t groups;                   /* Y */
    const uint32_t *host_expert_model; /* [X] */
    const uint32_t *host_expert_layer; /* [X] */
    const uint64_t *host_expert_bytes; /* [X] */
    const double *host_expert_flops;   /* [X] for one token */
    const uint64_t *host_hidden_bytes; /* [M] activations of one token */
    const double *host_frequency;      /* [N, X] activations by tokens that entered at the server */
    const double *host_user_model;     /* [U, M] probability that the user asks the model */
    const uint64_t *host_group_offsets; /* [Y + 1] into host_group_experts */
    const uint32_t *host_group_experts;
    const double *host_group_share; /* [U, Y] probability of the group given its model and layer */
    const uint8_t *host_user_holds; /* [U, X] 1: the user has the expert itself */
} moorage_demand;

/* One copy of an expert on a device. */
typedef struct moorage_copy {
    uint32_t expert;
    uint32_t device;
} moorage_copy;

typedef struct moorage_move {
    uint32_t size;
    uint32_t flags; /* 0 */
    uint64_t added_bytes;
    uint64_t removed_copies;
    uint64_t move_ns;            /* time to carry the added bytes over the links */
    double remote_calls_current; /* per second, under the statistics of the window */
    double remote_calls_candidate;
    double remote_call_ns; /* measured mean */
    double window_s;       /* time over which the gain counts */
} moorage_move;

#define MOORAGE_INTERFACE_PLACEMENT "moorage.placement/1"
typedef struct moorage_placement {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Fills `host_copies` (host's, `capacity` long), returns how many; `current` is the plan in
     * force, may be empty. Every expert must keep at least one copy or stay with the cloud. */
    uint64_t (*plan)(moorage_plugin *plugin, const moorage_cluster *cluster,
                     const moorage_demand *demand, const moorage_copy *host_current,
                     uint64_t current_count, moorage_copy *host_copies, uint64_t capacity);
    /* 1: the candidate pays for its migration. Null: always. */
    uint32_t (*adopt)(moorage_plugin *plugin, const moorage_move *move);
} moorage_placement;

#ifdef __cplusplus
}
#endif
#endif

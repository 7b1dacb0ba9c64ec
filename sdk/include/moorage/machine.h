/* machine.h - what a run has to work with: stores, the links between them, devices. In the limits.
 *
 * Ids are places in the three arrays of moorage_limits, the same from activate to deactivate and in
 * every run of a configuration. Devices are GPUs, then the CPU, then servers; each reads the store
 * of its own number. After those of the devices comes the disk, where experts are read from one.
 */
#ifndef MOORAGE_MACHINE_H
#define MOORAGE_MACHINE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MOORAGE_STORE_FAST = 0, /* that a device computes from: a GPU's memory, or the rows that the
                             * processor loads into */
    MOORAGE_STORE_HOST = 1,
    MOORAGE_STORE_DISK = 2,
    MOORAGE_STORE_SERVER = 3 /* of another machine */
};
typedef struct moorage_store {
    uint32_t size;
    int32_t kind;   /* MOORAGE_STORE_* */
    uint32_t slots; /* for whole experts, buffers apart; MOORAGE_NONE: it has every expert (a home
                     * in a cluster: those with a host_load_ns in items); 0: not known here */
    uint32_t versions; /* mask of the precisions that it can hold (MOORAGE_STATE_VERSION): bit 0
                        * the model's own, bit 1 a second, smaller one */
} moorage_store;
MOORAGE_ASSERT(sizeof(moorage_store) == 16, "moorage_store layout");

enum {
    MOORAGE_DEVICE_GPU = 0,   /* computes what its fast store holds; what is absent is loaded */
    MOORAGE_DEVICE_CPU = 1,   /* computes from host memory, without a load */
    MOORAGE_DEVICE_SERVER = 2 /* another machine: hidden states go there and back */
};
/* How far a device is: in this machine or at the server at which tokens entered, at another server,
 * or the last resort: the cloud, and of a home among nodes its own model directory, which is
 * offered as one more server. */
enum { MOORAGE_DISTANCE_OWN = 0, MOORAGE_DISTANCE_OTHER = 1, MOORAGE_DISTANCE_CLOUD = 2 };
typedef struct moorage_device {
    uint32_t size;
    int32_t kind;      /* MOORAGE_DEVICE_* */
    uint32_t store;    /* that it reads */
    uint32_t distance; /* MOORAGE_DISTANCE_* */
} moorage_device;
MOORAGE_ASSERT(sizeof(moorage_device) == 16, "moorage_device layout");

typedef struct moorage_link {
    uint32_t size;
    uint32_t from, to;  /* stores; both MOORAGE_NONE: the number stands for no link */
    uint32_t reserved;  /* 0 */
    double bytes_per_s; /* of one uncontended transfer; 0: not known */
} moorage_link;
MOORAGE_ASSERT(sizeof(moorage_link) == 24, "moorage_link layout");

#ifdef __cplusplus
}
#endif
#endif

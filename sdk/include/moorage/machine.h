/* machine.h - stores, the links between them and the devices of a run; part of the limits.
 *
 * An id is an index into one of the three arrays of moorage_limits. It stays the same from activate
 * to deactivate and in every run of a configuration. GPUs come first among the devices, then the
 * CPU, then servers. Each device reads the store with its own number. If experts are read from a
 * disk, the disk's store follows the stores of the devices.
 */
#ifndef MOORAGE_MACHINE_H
#define MOORAGE_MACHINE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MOORAGE_STORE_FAST = 0, /* a device computes from it: a GPU's memory, or the rows that the
                             * processor loads into */
    MOORAGE_STORE_HOST = 1,
    MOORAGE_STORE_DISK = 2,
    MOORAGE_STORE_SERVER = 3 /* memory of another machine */
};
typedef struct moorage_store {
    uint32_t size;
    int32_t kind;      /* MOORAGE_STORE_* */
    uint32_t slots;    /* whole experts that fit, buffers not counted. MOORAGE_NONE: the store has
                        * every expert; in a cluster a home has those with a host_load_ns in items.
                        * 0: not known here */
    uint32_t versions; /* mask of the precisions that it can hold (MOORAGE_STATE_VERSION): bit 0
                        * for the model's own, bit 1 for a second, smaller one */
} moorage_store;
MOORAGE_ASSERT(sizeof(moorage_store) == 16, "moorage_store layout");

enum {
    MOORAGE_DEVICE_GPU = 0,   /* computes experts in its fast store; absent ones are loaded */
    MOORAGE_DEVICE_CPU = 1,   /* computes from host memory, without a load */
    MOORAGE_DEVICE_SERVER = 2 /* another machine: hidden states travel there and back */
};
/* Distance of a device. OWN: in this machine, or at the server where the tokens entered. OTHER: at
 * another server. CLOUD: the last resort. That is the cloud, or a home's own model directory. A
 * home among nodes offers this directory as one more server. */
enum { MOORAGE_DISTANCE_OWN = 0, MOORAGE_DISTANCE_OTHER = 1, MOORAGE_DISTANCE_CLOUD = 2 };
typedef struct moorage_device {
    uint32_t size;
    int32_t kind;      /* MOORAGE_DEVICE_* */
    uint32_t store;    /* the store that it reads */
    uint32_t distance; /* MOORAGE_DISTANCE_* */
} moorage_device;
MOORAGE_ASSERT(sizeof(moorage_device) == 16, "moorage_device layout");

typedef struct moorage_link {
    uint32_t size;
    uint32_t from, to;  /* stores; both MOORAGE_NONE: this number stands for no link */
    uint32_t reserved;  /* 0 */
    double bytes_per_s; /* rate of one uncontended transfer; 0: not known */
} moorage_link;
MOORAGE_ASSERT(sizeof(moorage_link) == 24, "moorage_link layout");

#ifdef __cplusplus
}
#endif
#endif

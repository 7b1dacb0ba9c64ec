/* host.h - what the host offers to a policy: errors, and services found by id.
 *
 *   const moorage_log *log = host->get_service(host, MOORAGE_SERVICE_LOG);
 *   if (log) log->write(host, MOORAGE_LOG_INFO, "ready");
 *
 * get_service returns null if this host does not have the service. Check this in create, not in a
 * step. The tables live as long as the host. No run drives a wire or a placement policy. For them
 * the clock stands at 0 and both views are null.
 */
#ifndef MOORAGE_HOST_H
#define MOORAGE_HOST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct moorage_host moorage_host;
struct moorage_host {
    uint32_t size;
    uint32_t flags;     /* 0 */
    uint32_t abi_major; /* the major version that the host speaks; it loads no other */
    uint32_t abi_minor;
    void *host_data; /* owned by the host */
    /* Returns the service table for `id`, or null. [any] */
    const void *(*get_service)(const moorage_host *host, const char *id);
    /* Sets the text for the failure that the policy is about to return. The host copies it. Write
     * it in lower case without a full stop. Name the thing, the value, the limit and the remedy.
     * [load] [control] */
    void (*set_error)(const moorage_host *host, const char *text);
};
MOORAGE_ASSERT(sizeof(moorage_host) == 40, "moorage_host layout");

#define MOORAGE_SERVICE_LOG "moorage.host.log/1"
enum {
    MOORAGE_LOG_DEBUG = 0,
    MOORAGE_LOG_INFO = 1,
    MOORAGE_LOG_WARNING = 2,
    MOORAGE_LOG_ERROR = 3
};
typedef struct moorage_log {
    uint32_t size;
    uint32_t flags;
    /* Writes one line, which is copied. Plugins write nowhere else. [any], but not in steps */
    void (*write)(const moorage_host *host, int32_t level, const char *text);
} moorage_log;

#define MOORAGE_SERVICE_THREAD_CHECK "moorage.host.thread-check/1"
typedef struct moorage_thread_check {
    uint32_t size;
    uint32_t flags;
    /* 1 while the calling thread is in a [control] or [load] call to this instance. [any] */
    uint32_t (*in_control)(const moorage_host *host);
    /* 1 while the calling thread is in a [step] call to this instance. [any] */
    uint32_t (*in_step)(const moorage_host *host);
} moorage_thread_check;

#define MOORAGE_SERVICE_CLOCK "moorage.host.clock/1"
typedef struct moorage_clock {
    uint32_t size;
    uint32_t flags;
    /* Nanoseconds since the run began; virtual time in the emulator. It is the only clock to use,
     * except for wires. [any] */
    uint64_t (*now_ns)(const moorage_host *host);
} moorage_clock;

#define MOORAGE_SERVICE_RANDOM "moorage.host.random/1"
typedef struct moorage_random {
    uint32_t size;
    uint32_t flags;
    /* The next 64 uniform bits of this instance's own stream. The stream follows from `[run] seed`
     * and the policy's name. It starts again at activate and at reset. [step] [control] */
    uint64_t (*next)(const moorage_host *host);
} moorage_random;

#define MOORAGE_SERVICE_RESIDENCY "moorage.host.residency/1"
typedef struct moorage_residency_service {
    uint32_t size;
    uint32_t flags;
    /* The view of this run. Null before activate: ask in activate or later. [any] */
    const moorage_residency *(*view)(const moorage_host *host);
} moorage_residency_service;

#define MOORAGE_SERVICE_COSTS "moorage.host.costs/1"
typedef struct moorage_costs_service {
    uint32_t size;
    uint32_t flags;
    /* The view of this run. Null if time is not modelled (replay). [any] */
    const moorage_costs *(*view)(const moorage_host *host);
} moorage_costs_service;

#define MOORAGE_SERVICE_FUTURE "moorage.host.future/1"
typedef struct moorage_future {
    uint32_t size;
    uint32_t flags;
    /* Returns the first step after `step` that requests `page`, or MOORAGE_NEVER. If `plugin_token`
     * is not null, it receives that step's token (moorage_step.token). `step` never goes back
     * between two resets. Amortised constant time. [step] */
    uint64_t (*next_use)(const moorage_host *host, uint32_t page, uint64_t step,
                         uint64_t *plugin_token);
} moorage_future;

MOORAGE_ASSERT(sizeof(moorage_thread_check) == 24, "service layout");
MOORAGE_ASSERT(sizeof(moorage_future) == 16, "service layout");

#ifdef __cplusplus
}
#endif
#endif

/* module.h - the entry point of a policy library: module, descriptors, parameters, instances.
 *
 * A library exports one function, moorage_module_v2. It returns a constant record. From this record
 * the host gets descriptors, one per policy, and creates instances. An instance answers for one or
 * more kinds through get_interface("moorage.cache/1") and so on. An unknown id gives null.
 * Libraries stay loaded until the process ends. Policies run with the full rights of the process.
 *
 * Life of an instance: create -> activate -> steps (reset between runs) -> deactivate -> destroy.
 * Allocate everything in activate. Its limits bound every later call.
 */
#ifndef MOORAGE_MODULE_H
#define MOORAGE_MODULE_H

#include "host.h"
#include "machine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOORAGE_MODULE_SYMBOL "moorage_module_v2"

enum {
    MOORAGE_PARAM_INTEGER = 1,
    MOORAGE_PARAM_REAL = 2,
    MOORAGE_PARAM_FLAG = 3,
    MOORAGE_PARAM_TEXT = 4
};

/* Declaration of one parameter. Static. Only the fields of its type are read. */
typedef struct moorage_param {
    uint32_t size;
    int32_t type;            /* MOORAGE_PARAM_*; a FLAG uses the integer fields with 0 or 1 */
    const char *plugin_key;  /* snake_case, unit last: "window_tokens" */
    const char *plugin_help; /* one line */
    int64_t integer_default, integer_min, integer_max;
    double real_default, real_min, real_max;
    const char *plugin_text_default; /* TEXT */
    const char *plugin_text_choices; /* TEXT: "a|b|c", or null: any text */
} moorage_param;
MOORAGE_ASSERT(sizeof(moorage_param) == 88, "moorage_param layout");

/* One typed value, checked against its declaration. Borrowed for create. */
typedef struct moorage_value {
    uint32_t size;
    int32_t type;
    int64_t integer;
    double real;
    const char *host_text;
} moorage_value;
MOORAGE_ASSERT(sizeof(moorage_value) == 32, "moorage_value layout");

/* The needs of a policy. A run that lacks one of them is refused at start, with a text that says
 * what to set. A bit that the host does not know is refused too. The first four concern the source.
 * The others concern the composition and count for the named kind. If the policy does not answer
 * for the named kind, they count for every kind that it answers for. */
enum {
    MOORAGE_NEEDS_GATE_SCORES = 1,   /* scores of all experts, chosen or not */
    MOORAGE_NEEDS_WEIGHTS = 2,       /* router weights of the chosen ones */
    MOORAGE_NEEDS_PREDICTIONS = 4,   /* experts predicted for later layers */
    MOORAGE_NEEDS_FUTURE = 8,        /* the whole trace in advance, as an offline bound needs it */
    MOORAGE_NEEDS_PER_LAYER = 16,    /* budget: a pool of slots for each layer */
    MOORAGE_NEEDS_LAYER_BUFFER = 32, /* prefetch: a buffer for all experts of a layer */
    MOORAGE_NEEDS_SERVERS = 64       /* dispatch: servers that can be called */
};
enum {
    MOORAGE_POLICY_LOSSY = 1,      /* may change the model's output */
    MOORAGE_POLICY_RANDOMISED = 2, /* draws from the host's random service */
    MOORAGE_POLICY_SEGMENTS = 4,   /* plans splits, or brings the segments that a slot lacks */
    MOORAGE_POLICY_HIDDEN = 8      /* reads hidden states where there are any; costs a copy in
                                    * each step */
};

/* Description of one policy. Static. The host reads it without creating an instance. */
typedef struct moorage_descriptor {
    uint32_t size;
    uint32_t flags;                     /* MOORAGE_POLICY_* */
    const char *plugin_name;            /* the name in TOML: "lru"; policies of one kind differ */
    const char *plugin_version;         /* "1.2.0" */
    const char *plugin_summary;         /* one line */
    const char *plugin_source;          /* paper, section, equation; may be empty */
    const char *const *plugin_kinds;    /* [kind_count] ids of the interfaces that it answers for */
    const moorage_param *plugin_params; /* [param_count], each of plugin_params[0].size bytes */
    uint32_t kind_count;
    uint32_t param_count;
    uint32_t needs; /* MOORAGE_NEEDS_* */
    /* Bit i: parameter i belongs to the method. A method has policies of this name in several
     * stages. The run warns if its stages give the parameter different values. */
    uint32_t method_params;
} moorage_descriptor;
MOORAGE_ASSERT(sizeof(moorage_descriptor) == 72, "moorage_descriptor layout");

/* Bounds of everything that an instance meets until deactivate. */
typedef struct moorage_limits {
    uint32_t size;
    uint32_t flags;   /* 0 */
    uint32_t layers;  /* MoE layers */
    uint32_t experts; /* per layer */
    uint32_t top_k;
    uint32_t tokens_max;      /* tokens of one step */
    uint32_t requests_max;    /* requests at one time; stream ids are below this number */
    uint32_t pools;           /* 1 or layers */
    uint32_t slots;           /* cache slots in all pools together */
    uint32_t buffer_slots;    /* transfer buffer, beside the cache */
    uint32_t segments;        /* parts that an expert may be split into: 1 or 2 */
    uint32_t predictions_max; /* predicted experts per layer, also if there are no predictions */
    uint32_t hidden_size;     /* values of a token's hidden state; 0 if steps do not show it */
    uint32_t transfers_max;   /* transfers at one time */
    uint32_t stores;
    uint32_t devices;
    uint32_t links;    /* links that a transport policy serves */
    uint32_t reserved; /* 0 */
    uint64_t expert_bytes;
    /* Lent for the call. */
    const moorage_store *host_stores;   /* [stores] */
    const moorage_device *host_devices; /* [devices]; none in a replay */
    const moorage_link *host_links;     /* [links] */
} moorage_limits;
MOORAGE_ASSERT(offsetof(moorage_limits, expert_bytes) == 72, "moorage_limits layout");
MOORAGE_ASSERT(sizeof(moorage_limits) == 104, "moorage_limits layout");

typedef struct moorage_plugin moorage_plugin;
struct moorage_plugin {
    uint32_t size;
    uint32_t flags;    /* 0 */
    void *plugin_data; /* owned by the plugin */
    /* Frees the instance, which is not active. [control] */
    void (*destroy)(moorage_plugin *plugin);
    /* Allocates for `limits` (lent). Unless it returns MOORAGE_OK, it stays inactive. [control] */
    int32_t (*activate)(moorage_plugin *plugin, const moorage_limits *limits);
    /* Frees what activate allocated. [control] */
    void (*deactivate)(moorage_plugin *plugin);
    /* Restores the state right after activate and keeps the memory. [control] */
    void (*reset)(moorage_plugin *plugin);
    /* Returns the table of the interface `id`, or null. The table lives as long as the library. It
     * begins with its size, and the host reads no further. [load] */
    const void *(*get_interface)(moorage_plugin *plugin, const char *id);
};
MOORAGE_ASSERT(sizeof(moorage_plugin) == 56, "moorage_plugin layout");

typedef struct moorage_module moorage_module;
struct moorage_module {
    uint32_t size;
    uint32_t flags;     /* 0 */
    uint32_t abi_major; /* MOORAGE_ABI_MAJOR at build time */
    uint32_t abi_minor;
    const char *plugin_id; /* reverse domain: "org.example.lru" */
    const char *plugin_version;
    uint32_t descriptor_count;
    uint32_t abi_minor_needed; /* the least minor version that it works with; an older host
                                * refuses it */
    /* Called once before the first create. May be null. [load] */
    int32_t (*init)(const moorage_host *host);
    /* Called once at exit, after the last destroy. May be null. [load] */
    void (*deinit)(void);
    /* Returns descriptor `index`, static. Null if out of range. [load] */
    const moorage_descriptor *(*descriptor)(uint32_t index);
    /* Creates an instance of the policy `name`. `values` follow the declared parameters one by one.
     * Both are lent for the call. `host` stays valid until destroy. On failure the policy leaves
     * `out` untouched and has called set_error. [load] */
    int32_t (*create)(const char *name, const moorage_host *host, const moorage_value *host_values,
                      uint32_t value_count, moorage_plugin **out);
};
MOORAGE_ASSERT(offsetof(moorage_module, create) == 64, "moorage_module layout");
MOORAGE_ASSERT(sizeof(moorage_module) == 72, "moorage_module layout");

/* A figure that a policy states at the end of a run, or about its last plan. */
typedef struct moorage_fact {
    const char *plugin_name; /* "curvature", "bound_s": the unit comes last; valid until the next
                              * call */
    double value;
} moorage_fact;
MOORAGE_ASSERT(sizeof(moorage_fact) == 16, "moorage_fact layout");

/* Offered by a policy of any kind that has figures of its own. The report and its JSON show them
 * under the policy's name. */
#define MOORAGE_INTERFACE_FACTS "moorage.facts/1"
typedef struct moorage_facts {
    uint32_t size;
    uint32_t flags; /* 0 */
    /* Writes up to `capacity` facts and returns their number. Required. [control] */
    uint32_t (*facts)(moorage_plugin *plugin, moorage_fact *host_facts, uint32_t capacity);
} moorage_facts;
MOORAGE_ASSERT(sizeof(moorage_facts) == 16, "moorage_facts layout");

/* The exported function. It takes no argument, has no side effect and returns a constant. [load] */
typedef const moorage_module *(*moorage_module_function)(void);

#ifdef __cplusplus
}
#endif
#endif

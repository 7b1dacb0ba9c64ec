// cluster_config.h - the servers, links, users and workloads of a cluster as described in TOML.
//
// Sections [cluster], [[cluster.models]], [[cluster.servers]], [[cluster.links]], [cluster.cloud],
// [cluster.radio], [[cluster.users]] and [[cluster.workloads]] of a run's file, or of the file that
// `[cluster] file` names. Everything is checked here but what needs the sizes of models: unknown
// names and keys, servers that no link reaches, shares that do not sum to one. An entry with
// `count = n` stands for n entries, called name.0 to name.(n-1); its name stands for all of them
// wherever a name is given.
//
// --set cluster.KEY, cluster.radio.KEY and cluster.cloud.KEY replace a key of a table. For a list
// of tables, --set cluster.LIST.KEY sets the key in every entry, and --set cluster.LIST.NAME.KEY in
// the entry of that name: cluster.servers.expert_memory_bytes=2.5e9, cluster.users.count=40.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/config/section.h"

namespace moorage::core {

struct cluster_model {
    std::string name, place;
    std::string shape;                     // configs/models, or a path; default: the entry's name
    std::optional<uint64_t> expert_bytes;  // where experts are stored smaller than the shape says
    uint32_t value_bits = 16;              // of a hidden state on the way
    uint32_t groups = 1;                   // that its router limits tokens to
    std::filesystem::path weights;  // directory that nodes read it from; empty: they are told
};

// Metres in a plane.
struct position {
    double x = 0, y = 0;
};

struct cluster_server {
    std::string name, place;
    // Hardware profiles of its GPUs; or `flops`, one ideal device: every expert of a model gets
    // flops / experts of it, calls do not queue (SlimCaching, Section III-C).
    std::vector<std::string> gpus;
    double flops = 0;
    // Memory for experts of each device: bytes, or a share of the device's memory. Neither: what
    // the profile leaves beside the non-expert weights of the models of its workload.
    std::optional<uint64_t> expert_memory_bytes;
    double expert_memory_share = 0;
    bool host_experts = false;    // its main memory holds every expert, so that they can be loaded
    double load_bytes_per_s = 0;  // into each device; 0: the profile's, of an ideal one not limited
    std::optional<position> at;   // set for all where there is a radio
    std::string workload;         // of tokens that enter here; empty: none
    // Of the node that it is in reality: where others call it, "host:port" or several with commas
    // between; where it answers heartbeats; where it says how it is, over HTTP. Empty: nowhere.
    std::string address, heartbeats, status;
};

struct cluster_link {
    std::string from, to, place;  // a server's name or that of an entry; "*" stands for all
    bool symmetric = true;
    double bits_per_s = 0;
    double latency_s = 0;
};

struct cluster_cloud {
    double flops = 0;
    double bits_per_s = 0;  // 0: not limited
    double latency_s = 0;   // each way
};

// Eq. (3) and (4) of SlimCaching.
struct cluster_radio {
    double user_bandwidth_hz = 0;  // of each user: as given, or shared_bandwidth_hz over all users
    double server_bandwidth_hz = 0;  // between servers; 0: [[cluster.links]] say
    double user_power_w = 0, server_power_w = 0;
    double gain = 1, path_loss = 4;
    double noise_w_per_hz = 0;
    double distance_min_m = 1;
    // Servers and users without a position are put uniformly at random into a square of this side.
    double area_m = 0;
    uint64_t position_seed = 0;
};

struct cluster_user {
    std::string name, place;
    std::optional<position> at;
    double flops = 0;
    uint32_t local_experts = 0;  // it holds the ones it uses most
    std::string workload;
};

// What tokens ask for and when.
struct cluster_workload {
    std::string name, place;
    // Share of each model, by name; sums to 1. All alike where none are given.
    std::vector<std::pair<std::string, double>> models;
    // Each home draws its own set: this many of `models` (from min to max, the number is drawn,
    // too), in an order of its own that is the order of popularity. max 0: all, with the shares.
    uint32_t models_per_user_min = 0, models_per_user_max = 0;
    double model_zipf = 0;  // popularity rank^-model_zipf of the models of a set
    uint64_t model_seed = 0;
    // One of these says which experts are chosen; with a trace or a frequency file, `zipf` is for
    // the models that the file does not fit.
    std::filesystem::path trace;       // *.safetensors with `experts` ...
    std::vector<std::string> domains;  // ... of these domains (or subjects) alone, where given
    uint32_t request_first = 0, request_step = 1;  // and of requests first, first + step, ... of it
    std::filesystem::path frequency;  // *.safetensors with `frequency` [subjects, L, E]
    double zipf = -1;                 // or drawn: popularity rank^-zipf, ranks shuffled per layer
    uint64_t draw_seed = 0;           //   by this seed; equal seeds give equal popularity
    bool per_user = false;            //   unless every home has a shuffle of its own
    // Sets of experts chosen together that are kept per layer and home at most. More than that are
    // represented by as many tokens, drawn or evenly spaced. 0: only frequencies.
    uint32_t groups_max = 16384;
    // When requests come: every poisson_s on average, or as a CSV of arrival_s, input, output says.
    double poisson_s = 0;
    std::filesystem::path arrivals;
    uint32_t input_tokens = 0, output_tokens = 0;  // of each; 0: as in the trace
    // From then_s on, in a run, tokens come as another workload says.
    std::string then;
    double then_s = 0;
};

struct cluster_config {
    std::string place;  // for messages
    bool serial_calls = false;
    bool returns_each = false;
    // Of a run.
    double duration_s = 0;        // requests come for so long; 0: until `requests`
    uint64_t requests = 0;        // of each home; 0: until `duration_s`
    double faster = 1;            // so many times as often: no key, but `moorage load --faster`
    double bucket_s = 0;          // of figures over time; 0: a 60th of the duration
    uint32_t offers_max = 8;      // servers that a home considers for an expert, the nearest
    double local_bits_per_s = 0;  // between the devices of a server; 0: takes no time
    // The links of a server share its interface: of what it sends, and of what it receives, one
    // message is under way at a time (MOORAGE_LINKS_SHARED).
    bool shared_interface = false;
    bool own_disk = true;  // a node computes from its model directory what no other node does
    std::vector<cluster_model> models;
    std::vector<cluster_server> servers;
    std::vector<cluster_link> links;
    std::optional<cluster_cloud> cloud;
    std::optional<cluster_radio> radio;
    std::vector<cluster_user> users;
    std::vector<cluster_workload> workloads;
    // [placement] beside the policy's own keys.
    double interval_s = 300;           // between decisions while a run goes on; 0: never again
    double window_s = 600;             // half-life of the statistics it decides by
    double migration_bytes_per_s = 0;  // budget of each device, 0: what the links leave
    double migration_delay_max = 0.1;  // of the time of demand traffic that migration may add
    uint32_t zone_servers = 0;  // planned together (core/placement/zones.h); 0: all up to 1,024
    std::filesystem::path plan;  // a plan that `moorage place` wrote; empty: the policy makes one
};

// Where the values of a section were written; paths among them are relative to `base`.
struct cluster_origin {
    std::string file;
    std::filesystem::path base;
};

// `cluster` holds the keys of [cluster] and what --set gives; it has no key `file` any more.
result<cluster_config> read_cluster_config(const section_reader &cluster,
                                           const cluster_origin &from);
// Names, references, reachability; draws the positions that are not given. Part of the above.
status complete_cluster_config(cluster_config &config);

// Whether `name` is the entry's name, or that of the counted entry that it belongs to.
bool is_named(const std::string &entry, const std::string &name);

}  // namespace moorage::core

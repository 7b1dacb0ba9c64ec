// cluster_config.h - the servers, links, users and workloads of a cluster as described in TOML.
//
// Reads the sections [cluster], [[cluster.models]], [[cluster.servers]], [[cluster.links]],
// [cluster.cloud], [cluster.radio], [[cluster.users]] and [[cluster.workloads]]. They stand in a
// run's file or in the file that `[cluster] file` names. Everything that does not need the sizes of
// models is checked here: unknown names and keys, servers that no link reaches, shares that do not
// sum to one. An entry with `count = n` stands for n entries, called name.0 to name.(n-1). Wherever
// a name is expected, its name stands for all of them.
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
    std::string shape;                     // a file of configs/models, or a path; default: the
                                           // entry's name
    std::optional<uint64_t> expert_bytes;  // if experts are stored smaller than the shape says
    uint32_t value_bits = 16;              // of a value of a hidden state on the network
    uint32_t groups = 1;                   // expert groups that its router limits each token to
    std::filesystem::path weights;  // directory that nodes read it from; empty: a node's command
                                    // line names it
};

// Metres in a plane.
struct position {
    double x = 0, y = 0;
};

struct cluster_server {
    std::string name, place;
    // Hardware profiles of its GPUs. Or `flops`: one ideal device, of which each expert of a model
    // gets flops / experts; calls do not queue (SlimCaching, Section III-C).
    std::vector<std::string> gpus;
    double flops = 0;
    // Memory for experts of each device: bytes, or a share of the device's memory. Without either,
    // it is what the profile leaves after the non-expert weights of its workload's models.
    std::optional<uint64_t> expert_memory_bytes;
    double expert_memory_share = 0;
    bool host_experts = false;    // main memory holds every expert; devices can load them
    double load_bytes_per_s = 0;  // into each device; 0: the profile's rate, or no limit for an
                                  // ideal device
    std::optional<position> location;  // always set if there is a radio
    std::string workload;              // of tokens that enter here; empty: none
    // Addresses of the real node. `address`: where other nodes call it, "host:port", or several
    // separated by commas. `heartbeats`: where it answers heartbeats. `status`: where it reports
    // its state over HTTP. Empty: none.
    std::string address, heartbeats, status;
};

struct cluster_link {
    std::string source, target, place;  // names of servers or entries; "*": all
    bool symmetric = true;
    double bits_per_s = 0;
    double latency_s = 0;
};

struct cluster_cloud {
    double flops = 0;
    double bits_per_s = 0;  // 0: no limit
    double latency_s = 0;   // each way
};

// Eq. (3) and (4) of SlimCaching.
struct cluster_radio {
    double user_bandwidth_hz = 0;  // of each user; as given, or shared_bandwidth_hz divided by the
                                   // users
    double server_bandwidth_hz = 0;  // between servers; 0: [[cluster.links]] apply
    double user_power_w = 0, server_power_w = 0;
    double gain = 1, path_loss = 4;
    double noise_w_per_hz = 0;
    double distance_min_m = 1;
    // Side of the square in which servers and users without a position are placed uniformly at
    // random.
    double area_m = 0;
    uint64_t position_seed = 0;
};

struct cluster_user {
    std::string name, place;
    std::optional<position> location;
    double flops = 0;
    uint32_t local_experts = 0;  // it holds those that it uses most
    std::string workload;
};

// Which experts tokens use, and when requests arrive.
struct cluster_workload {
    std::string name, place;
    // Share of each model, by name; sums to 1. Equal shares if none are given.
    std::vector<std::pair<std::string, double>> models;
    // Each home draws its own set of models. The size of the set is drawn between min and max. The
    // order of the set is random and is its order of popularity. max 0: all models, with their
    // shares.
    uint32_t models_per_user_min = 0, models_per_user_max = 0;
    double model_zipf = 0;  // popularity within a set is rank^-model_zipf
    uint64_t model_seed = 0;
    // One of `trace`, `frequency` and `zipf` decides which experts are chosen. With a file, `zipf`
    // applies to the models that the file does not fit.
    std::filesystem::path trace;       // *.safetensors with `experts`
    std::vector<std::string> domains;  // only these domains (or subjects) of the file; empty: all
    uint32_t request_first = 0, request_step = 1;  // only requests first, first + step, ... of the
                                                   // trace
    std::filesystem::path frequency;  // *.safetensors with `frequency` [subjects, L, E]
    double zipf = -1;                 // or drawn: popularity rank^-zipf, ranks shuffled per layer
    uint64_t draw_seed = 0;           // seed of the shuffles; equal seeds give equal popularity
    bool per_user = false;            // every home has its own shuffles
    // Limit of the sets of experts chosen together that are kept per layer and home. More sets than
    // that are represented by this number of tokens, drawn or evenly spaced. 0: only frequencies.
    uint32_t groups_max = 16384;
    // When requests arrive: every poisson_s on average, or as listed in a CSV of arrival_s, input,
    // output.
    double poisson_s = 0;
    std::filesystem::path arrivals;
    uint32_t input_tokens = 0, output_tokens = 0;  // of each request; 0: as in the trace
    // From next_workload_s on, tokens of a run follow this other workload.
    std::string next_workload;
    double next_workload_s = 0;
};

struct cluster_config {
    std::string place;  // for messages
    bool serial_calls = false;
    bool returns_each = false;
    // Options of a run.
    double duration_s = 0;        // how long requests arrive; 0: until `requests`
    uint64_t requests = 0;        // of each home; 0: until `duration_s`
    double rate_factor = 1;       // factor of the request rate: no key, but `moorage load --faster`
    double bucket_s = 0;          // width of the time buckets of reports; 0: a 60th of the duration
    uint32_t offers_max = 8;      // how many servers a home considers for an expert, nearest first
    double local_bits_per_s = 0;  // between the devices of a server; 0: takes no time
    // The links of a server share its interface. It sends one message at a time and receives one at
    // a time (MOORAGE_LINKS_SHARED).
    bool shared_interface = false;
    bool own_disk = true;  // a node computes experts that no other node offers from its model
                           // directory
    std::vector<cluster_model> models;
    std::vector<cluster_server> servers;
    std::vector<cluster_link> links;
    std::optional<cluster_cloud> cloud;
    std::optional<cluster_radio> radio;
    std::vector<cluster_user> users;
    std::vector<cluster_workload> workloads;
    // [placement], except the policy's own keys.
    double interval_s = 300;           // between decisions during a run; 0: only one decision
    double window_s = 600;             // half-life of the statistics that it decides by
    double migration_bytes_per_s = 0;  // limit of each device; 0: what the links leave
    double migration_delay_max = 0.1;  // upper limit: share of the time of demand traffic that
                                       // migration may add
    uint32_t zone_servers = 0;   // planned together (tools/placement/zones.h); 0: all, up to 1,024
    std::filesystem::path plan;  // a plan that `moorage place` wrote; empty: the policy makes one
};

// Where the values of a section were written. Paths in them are relative to `base`.
struct cluster_origin {
    std::string file;
    std::filesystem::path base;
};

// `cluster` holds the keys of [cluster] and those of --set. Its key `file` has been resolved.
result<cluster_config> read_cluster_config(const section_reader &cluster,
                                           const cluster_origin &origin);
// The last part of read_cluster_config(). Checks names, references and reachability, and draws the
// missing positions.
status complete_cluster_config(cluster_config &config);

// Is `name` the name of the entry, or of the counted entry that it belongs to?
bool is_named(const std::string &entry, const std::string &name);

}  // namespace moorage::core

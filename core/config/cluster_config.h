// cluster_config.h - the servers, links, users and workloads of a cluster as described in TOML.
//
// Sections [cluster], [[cluster.models]], [[cluster.servers]], [[cluster.links]], [cluster.cloud],
// [cluster.radio], [[cluster.users]] and [[cluster.workloads]] of a run's file, or of the file that
// `[cluster] file` names. Everything is checked here but what needs the sizes of models: unknown
// names and keys, servers that no link reaches, shares that do not sum to one. An entry with
// `count = n` stands for n entries, called name.0 to name.(n-1).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/config/section.h"

namespace moorage::core {

struct cluster_model {
    std::string name, place;
    std::string shape;                   // configs/models, or a path
    std::optional<uint64_t> expert_bytes;  // where experts are stored smaller than the shape says
    uint32_t value_bits = 16;            // of a hidden state on the way
    uint32_t groups = 1;                 // that its router limits tokens to
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
    uint64_t expert_memory_bytes = 0;  // of each device; 0: what the profile leaves
    double expert_memory_share = 1;    // or a share of the device's memory
    std::optional<position> at;
    std::string workload;  // of tokens that enter here; empty: none
};

struct cluster_link {
    std::string from, to, place;  // "*" stands for every server
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
    double user_bandwidth_hz = 0;    // of each user
    double server_bandwidth_hz = 0;  // between servers; 0: [[cluster.links]] say
    double user_power_w = 0, server_power_w = 0;
    double gain = 1, path_loss = 4;
    double noise_w_per_hz = 0;
    double distance_min_m = 1;
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
    // Share of each model, by name; sums to 1. One of `models` alone where the cluster has one.
    std::vector<std::pair<std::string, double>> models;
    // One of these says which experts are chosen.
    std::filesystem::path trace;      // *.safetensors with `experts` ...
    std::vector<std::string> domains;  // ... of these domains alone, where given
    std::filesystem::path frequency;  // *.safetensors with `frequency` [subjects, L, E]
    double zipf = -1;                 // or drawn: popularity rank^-zipf, ranks shuffled per layer
    uint64_t draw_seed = 0;           //   by this seed; equal seeds give equal popularity
    // When requests come: every poisson_s on average, or as a CSV of arrival_s, input, output says.
    double poisson_s = 0;
    std::filesystem::path arrivals;
    uint32_t input_tokens = 0, output_tokens = 0;  // of each; 0: as in the trace
};

struct cluster_config {
    std::string place;  // for messages
    bool serial_calls = false;
    bool returns_each = false;
    std::vector<cluster_model> models;
    std::vector<cluster_server> servers;
    std::vector<cluster_link> links;
    std::optional<cluster_cloud> cloud;
    std::optional<cluster_radio> radio;
    std::vector<cluster_user> users;
    std::vector<cluster_workload> workloads;
    // [placement] beside the policy's own keys.
    double interval_s = 300;       // between decisions while a run goes on; 0: never again
    double window_s = 600;         // half-life of the statistics it decides by
    double migration_bytes_per_s = 0;  // budget of each device, 0: what the links leave
    double migration_delay_max = 0.1;  // of the time of demand traffic that migration may add
    std::filesystem::path plan;    // a plan that `moorage place` wrote; empty: the policy makes one
};

}  // namespace moorage::core

// scene.h - a cluster and its demand as the plain arrays that placement policies see.
//
// cluster_arrays and demand_arrays own the arrays behind moorage_cluster and moorage_demand. view()
// is valid until the next change or move. make_scene() fills both from a description:
//
//   homes    the servers, in their order (0 tokens/s without a workload), then the users
//   links    [cluster.radio] between all servers, then [[cluster.links]] in their order; a later
//            one replaces an earlier one. A server to itself: infinite rate, no latency
//   devices  a GPU has the cost model's times: call_s for one expert and one token, token_s the
//            mean of the next 32. An ideal device: Eq. (6) of SlimCaching, the same for each
//            token, and no limit of the load rate
//   tokens/s of a home: mean length of its workload's requests / mean time between them; 1 if the
//            workload does not say when they come, so that all homes have equal weight
//   batch    tokens / passes: inputs pass together, up to 512, outputs one by one
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/cluster_config.h"
#include "core/config/hardware.h"
#include "moorage/placement.h"

namespace moorage::core {

struct cluster_arrays {
    uint32_t flags = 0, servers = 0, homes = 0, models = 0;
    std::vector<uint32_t> device_server;
    std::vector<uint64_t> device_bytes;
    std::vector<double> device_load_bytes_per_s, device_call_s, device_token_s;
    std::vector<double> link_bytes_per_s, link_s;
    std::vector<double> cloud_up_bytes_per_s, cloud_down_bytes_per_s, cloud_s, cloud_call_s;
    std::vector<uint32_t> home_server;
    std::vector<double> home_up_bytes_per_s, home_down_bytes_per_s, home_call_s;

    uint32_t devices() const { return static_cast<uint32_t>(device_server.size()); }
    bool has_cloud() const { return !cloud_s.empty(); }
    moorage_cluster view() const;
    bool operator==(const cluster_arrays &) const = default;
};

struct demand_arrays {
    uint32_t models = 0, homes = 0;
    std::vector<uint32_t> model_first, model_layers, model_experts, model_top_k, model_groups;
    std::vector<uint64_t> expert_bytes, hidden_bytes;
    std::vector<double> home_tokens_per_s, home_batch, home_model, frequency;
    std::vector<double> home_single_share;  // empty: not known
    std::vector<uint64_t> home_first_call;
    std::vector<uint32_t> call_group;
    std::vector<double> call_share;
    std::vector<uint64_t> group_first;
    std::vector<uint32_t> group_experts;
    std::vector<uint8_t> home_holds;
    double window_s = 0;

    uint32_t experts() const { return model_first.back(); }
    moorage_demand view() const;
    bool is_requested(uint32_t model) const;  // by any home
    bool operator==(const demand_arrays &) const = default;
};

// Names for messages and reports, and further data for the emulator.
struct scene {
    cluster_arrays cluster;
    demand_arrays demand;
    std::vector<std::string> server_names, home_names, model_names;
    std::vector<std::string> device_names;   // "lab.gpu0"
    std::vector<model_shape> shapes;         // [models]
    std::vector<hardware_profile> hardware;  // [devices]; an ideal device has an empty id
    std::vector<uint32_t> home_workload;     // [homes] index into config.workloads, no_workload
};
inline constexpr uint32_t no_workload = 0xffffffffu;

// Reads profiles, shapes and statistics, and makes the checks that need them. Without a cloud,
// memory must hold one copy of every expert. Traces must fit their model.
result<scene> make_scene(const cluster_config &config, const std::filesystem::path &base);

}  // namespace moorage::core

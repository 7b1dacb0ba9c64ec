// scene.h - a cluster and what is asked of it, as the plain arrays that placement policies see.
//
// cluster_arrays and demand_arrays own the arrays behind moorage_cluster and moorage_demand;
// view() is valid until the next change or move. make_scene() fills both from a description:
//
//   homes    the servers, in their order (0 tokens/s without a workload), then the users
//   links    [cluster.radio] between all servers, then [[cluster.links]] in their order, of which
//            a later one counts; a server to itself: infinite rate, no latency
//   devices  of a GPU, times are the cost model's: call_s one expert for one token, token_s the
//            mean of the next 32; of an ideal one, Eq. (6) of SlimCaching, the same for each token,
//            and a load rate that is not limited
//   tokens/s of a home: mean length of its workload's requests over the mean time between them; 1
//            where the workload does not say when they come, so that all homes count alike
//   batch    tokens over passes: an input passes together, up to 512, outputs one by one
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
    bool operator==(const demand_arrays &) const = default;
};

// Names for messages and reports, and what the emulator needs besides.
struct scene {
    cluster_arrays cluster;
    demand_arrays demand;
    std::vector<std::string> server_names, home_names, model_names;
    std::vector<std::string> device_names;   // "lab.gpu0"
    std::vector<model_shape> shapes;         // [models]
    std::vector<hardware_profile> hardware;  // [devices]; empty id: an ideal device
    std::vector<uint32_t> home_workload;     // [homes] index into config.workloads, no_workload
};
inline constexpr uint32_t no_workload = 0xffffffffu;

// Reads profiles, shapes and statistics, and checks what needs them: memory that cannot hold one
// copy of every expert where there is no cloud, traces that do not fit their model.
result<scene> make_scene(const cluster_config &config, const std::filesystem::path &base);

}  // namespace moorage::core

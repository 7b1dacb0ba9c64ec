// cluster_state.h - the state that all homes of an emulated cluster share: the time, the links, the
// queues of the devices, and the holders of each expert.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/cluster/network.h"
#include "core/execute/emulator.h"
#include "tools/placement/scene.h"

namespace moorage::core {

struct cluster_options {
    uint32_t offers_max = 8;  // servers that a home considers for an expert: the nearest ones;
                              // among equally near ones those that follow it
    uint64_t bucket_ns = 0;   // bucket of figures over time; 0: one bucket
};

// Where requests enter.
struct home_place {
    uint32_t device;  // MOORAGE_NONE: not a device of the plan
    uint32_t home, model;
};

// Devices that can be called for an expert.
class expert_holders {
public:
    explicit expert_holders(uint32_t experts) : devices_(experts), version_(experts, 1) {}

    std::span<const uint32_t> devices_of(uint32_t expert) const {
        return devices_[expert];
    }                                                                     // ascending
    uint32_t version(uint32_t expert) const { return version_[expert]; }  // counts the changes
    // Returns whether it is new.
    bool add(const moorage_copy &copy) {
        std::vector<uint32_t> &devices = devices_[copy.expert];
        const auto position = std::ranges::lower_bound(devices, copy.device);
        if (position != devices.end() && *position == copy.device) return false;
        devices.insert(position, copy.device);
        ++version_[copy.expert];
        return true;
    }
    void remove(const moorage_copy &copy) {
        std::erase(devices_[copy.expert], copy.device);
        ++version_[copy.expert];
    }

private:
    std::vector<std::vector<uint32_t>> devices_;  // [X]
    std::vector<uint32_t> version_;               // [X]
};

struct cluster_state {
    cluster_state(const scene &scene, const network_options &network,
                  const cluster_options &options)
        : cluster_scene(scene),
          options(options),
          links(scene.cluster, network),
          gpus(scene.cluster.devices()),
          holders(scene.demand.experts()) {}
    cluster_state(const cluster_state &) = delete;

    uint32_t devices() const { return cluster_scene.cluster.devices(); }
    bool serial() const { return (cluster_scene.cluster.flags & MOORAGE_CALLS_SERIAL) != 0; }
    bool returns_each() const { return (cluster_scene.cluster.flags & MOORAGE_RETURNS_EACH) != 0; }
    // The device of a server. null: its experts compute side by side, as the cloud's do.
    const emulator *gpu(uint32_t server) const {
        return server < devices() ? gpus[server] : nullptr;
    }
    // The time of a call of the model there, by the plan's linear model.
    uint64_t compute_ns(uint32_t server, uint32_t model, uint32_t tokens) const {
        const cluster_arrays &cluster = cluster_scene.cluster;
        const auto ns_of = [](double seconds) {
            return static_cast<uint64_t>(std::ceil(seconds * 1e9 - 1e-6));
        };
        if (server == devices()) return ns_of(cluster.cloud_call_s[model] * tokens);
        const size_t index = size_t{server} * cluster.models + model;
        return ns_of(cluster.device_call_s[index] + cluster.device_token_s[index] * (tokens - 1));
    }

    const scene &cluster_scene;
    const cluster_options options;
    uint64_t now_ns = 0;
    network links;
    std::vector<const emulator *> gpus;  // [devices]
    expert_holders holders;
};

}  // namespace moorage::core

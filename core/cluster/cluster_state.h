// cluster_state.h - the state that all homes of an emulated cluster share: the time, the links, the
// queues of the devices, and the holders of each expert.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cluster/network.h"
#include "core/execute/emulator.h"
#include "core/placement/scene.h"

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

    std::span<const uint32_t> of(uint32_t expert) const { return devices_[expert]; }  // ascending
    uint32_t version(uint32_t expert) const { return version_[expert]; }  // counts the changes
    // Returns whether it is new.
    bool add(const moorage_copy &copy) {
        std::vector<uint32_t> &all = devices_[copy.expert];
        const auto at = std::ranges::lower_bound(all, copy.device);
        if (at != all.end() && *at == copy.device) return false;
        all.insert(at, copy.device);
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
    cluster_state(const scene &all, const network_options &network, const cluster_options &options)
        : of(all),
          how(options),
          links(all.cluster, network),
          gpus(all.cluster.devices()),
          holders(all.demand.experts()) {}
    cluster_state(const cluster_state &) = delete;

    uint32_t devices() const { return of.cluster.devices(); }
    bool serial() const { return (of.cluster.flags & MOORAGE_CALLS_SERIAL) != 0; }
    bool returns_each() const { return (of.cluster.flags & MOORAGE_RETURNS_EACH) != 0; }
    // The device of a server. null: its experts compute side by side, as the cloud's do.
    const emulator *gpu(uint32_t server) const {
        return server < devices() ? gpus[server] : nullptr;
    }
    // The time of a call of the model there, by the plan's linear model.
    uint64_t compute_ns(uint32_t server, uint32_t model, uint32_t tokens) const {
        const cluster_arrays &all = of.cluster;
        const auto ns_of = [](double seconds) {
            return static_cast<uint64_t>(std::ceil(seconds * 1e9 - 1e-6));
        };
        if (server == devices()) return ns_of(all.cloud_call_s[model] * tokens);
        const size_t at = size_t{server} * all.models + model;
        return ns_of(all.device_call_s[at] + all.device_token_s[at] * (tokens - 1));
    }

    const scene &of;
    const cluster_options how;
    uint64_t now_ns = 0;
    network links;
    std::vector<const emulator *> gpus;  // [devices]
    expert_holders holders;
};

}  // namespace moorage::core

// cluster_world.h - an invented cluster and its demand, for placement policies.
#pragma once

#include <cstdint>

#include "tools/moorage/check/fenced.h"
#include "tools/moorage/check/world.h"
#include "moorage/placement.h"

namespace moorage::check {

struct cluster_options {
    // Memory of all devices together: room for everything on each, for one copy of each expert, for
    // less, or for nothing.
    enum class memory { roomy, tight, scarce, none };

    uint32_t servers = 3, devices = 4, homes = 3, models = 1, layers = 2, experts = 6, top_k = 2;
    memory memory_room = memory::roomy;
    bool cloud = false;
    bool users = false;      // some homes are users, not servers; some of them hold experts
    bool calls = false;      // the sets of experts chosen together are known
    bool has_demand = true;  // somebody asks for something
    bool serial = false;     // MOORAGE_CALLS_SERIAL and MOORAGE_RETURNS_EACH
    uint64_t seed = 1;
    fence arrays = fence::canary;
};

// Every placement policy is led through these variants of clusters: 0, 1, ...
inline constexpr uint64_t cluster_variants = 8;
cluster_options cluster_variant(uint64_t number, uint64_t seed);

class cluster_world {
public:
    explicit cluster_world(const cluster_options &options);

    const moorage_cluster &cluster() { return cluster_[0]; }
    const moorage_demand &demand() { return demand_[0]; }
    uint32_t experts() const { return expert_count_; }  // X
    uint64_t bytes_of(uint32_t expert);
    // Whether a home asks for the expert's model.
    bool is_requested(uint32_t expert);
    // Draws other statistics for the same homes, as after some time.
    void drift();

    // Checksum over all lent arrays. Also whether nothing was written beside them.
    uint64_t checksum();
    bool intact() const;

    const cluster_options options;

private:
    void draw_cluster();
    void draw_memory();
    void draw_demand();
    void draw_calls();

    dice draw_;
    uint32_t expert_count_;
    uint64_t calls_, groups_;
    fenced<moorage_cluster> cluster_;
    fenced<moorage_demand> demand_;
    fenced<uint32_t> device_server_, home_server_, model_first_, model_layers_, model_experts_,
        model_top_k_, model_groups_, call_group_, group_experts_;
    fenced<uint64_t> device_bytes_, expert_bytes_, hidden_bytes_, home_first_call_, group_first_;
    fenced<double> device_load_, device_call_, device_token_, link_rate_, link_s_, cloud_up_,
        cloud_down_, cloud_s_, cloud_call_, home_up_, home_down_, home_call_, home_tokens_,
        home_batch_, home_model_, frequency_, call_share_, home_single_;
    fenced<uint8_t> home_holds_;
};

}  // namespace moorage::check

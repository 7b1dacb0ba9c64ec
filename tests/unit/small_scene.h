// small_scene.h - a cluster of two servers for tests of plans: small enough to work out by hand.
#pragma once

#include <limits>

#include "core/placement/scene.h"

namespace moorage::test {

// Server "west" has two devices of 20 bytes, "east" one of 30. One model "m": 2 layers of 2 experts
// of 10 bytes, numbers 0 to 3. Home 0 is west with 1 token a second, home 1 is east with 10.
inline core::scene small_scene() {
    core::scene made;
    made.cluster.servers = made.cluster.homes = 2, made.cluster.models = 1;
    made.cluster.device_server = {0, 0, 1};
    made.cluster.device_bytes = {20, 20, 30};
    made.cluster.device_load_bytes_per_s = {100, 50, 20};
    made.cluster.device_call_s = {0.001, 0.001, 0.001};
    made.cluster.device_token_s = {0.001, 0.001, 0.001};
    const double infinite = std::numeric_limits<double>::infinity();
    made.cluster.link_bytes_per_s = {infinite, 1000, 1000, infinite};
    made.cluster.link_s = {0, 0.01, 0.01, 0};
    made.cluster.home_server = {0, 1};
    made.cluster.home_up_bytes_per_s = made.cluster.home_down_bytes_per_s = {infinite, infinite};
    made.cluster.home_call_s = {0, 0};
    made.demand.models = 1, made.demand.homes = 2;
    made.demand.model_first = {0, 4};
    made.demand.model_layers = {2}, made.demand.model_experts = {2};
    made.demand.model_top_k = {1}, made.demand.model_groups = {1};
    made.demand.expert_bytes = {10}, made.demand.hidden_bytes = {10};
    made.demand.home_tokens_per_s = {1, 10}, made.demand.home_batch = {1, 1};
    made.demand.home_model = {1, 1};
    made.demand.frequency = {0.75, 0.25, 0.5, 0.5, 0.1, 0.9, 0, 1};
    made.server_names = made.home_names = {"west", "east"};
    made.model_names = {"m"};
    made.device_names = {"west.gpu0", "west.gpu1", "east.gpu0"};
    made.shapes.resize(1), made.hardware.resize(3), made.home_workload = {0, 0};
    return made;
}

// The same with a second model "n" of 1 layer of 2 experts of 4 bytes (numbers 4 and 5) that nobody
// asks for.
inline core::scene two_model_scene() {
    core::scene made = small_scene();
    made.cluster.models = made.demand.models = 2;
    for (auto *per_model : {&made.cluster.device_call_s, &made.cluster.device_token_s})
        per_model->assign(6, 0.001);
    made.cluster.home_call_s.assign(4, 0);
    made.demand.model_first = {0, 4, 6};
    made.demand.model_layers = {2, 1}, made.demand.model_experts = {2, 2};
    made.demand.model_top_k = made.demand.model_groups = {1, 1};
    made.demand.expert_bytes = {10, 4}, made.demand.hidden_bytes = {10, 10};
    made.demand.home_model = {1, 0, 1, 0};
    made.demand.frequency = {0.75, 0.25, 0.5, 0.5, 0, 0, 0.1, 0.9, 0, 1, 0, 0};
    made.model_names = {"m", "n"};
    made.shapes.resize(2);
    return made;
}

inline void give_cloud(core::scene &to) {
    to.cluster.cloud_up_bytes_per_s = to.cluster.cloud_down_bytes_per_s = {100, 100};
    to.cluster.cloud_s = {0.1, 0.1};
    to.cluster.cloud_call_s.assign(to.cluster.models, 0.001);
}

}  // namespace moorage::test

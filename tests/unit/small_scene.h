// small_scene.h - a cluster of two servers for tests of plans: small enough to work out by hand.
#pragma once

#include <limits>

#include "tools/placement/scene.h"

namespace moorage::test {

// Server "west" has two devices of 20 bytes, "east" one of 30. One model "m": 2 layers of 2 experts
// of 10 bytes, numbers 0 to 3. Home 0 is west with 1 token a second, home 1 is east with 10.
inline core::scene small_scene() {
    core::scene scene;
    scene.cluster.servers = scene.cluster.homes = 2, scene.cluster.models = 1;
    scene.cluster.device_server = {0, 0, 1};
    scene.cluster.device_bytes = {20, 20, 30};
    scene.cluster.device_load_bytes_per_s = {100, 50, 20};
    scene.cluster.device_call_s = {0.001, 0.001, 0.001};
    scene.cluster.device_token_s = {0.001, 0.001, 0.001};
    const double infinite = std::numeric_limits<double>::infinity();
    scene.cluster.link_bytes_per_s = {infinite, 1000, 1000, infinite};
    scene.cluster.link_s = {0, 0.01, 0.01, 0};
    scene.cluster.home_server = {0, 1};
    scene.cluster.home_up_bytes_per_s = scene.cluster.home_down_bytes_per_s = {infinite, infinite};
    scene.cluster.home_call_s = {0, 0};
    scene.demand.models = 1, scene.demand.homes = 2;
    scene.demand.model_first = {0, 4};
    scene.demand.model_layers = {2}, scene.demand.model_experts = {2};
    scene.demand.model_top_k = {1}, scene.demand.model_groups = {1};
    scene.demand.expert_bytes = {10}, scene.demand.hidden_bytes = {10};
    scene.demand.home_tokens_per_s = {1, 10}, scene.demand.home_batch = {1, 1};
    scene.demand.home_model = {1, 1};
    scene.demand.frequency = {0.75, 0.25, 0.5, 0.5, 0.1, 0.9, 0, 1};
    scene.server_names = scene.home_names = {"west", "east"};
    scene.model_names = {"m"};
    scene.device_names = {"west.gpu0", "west.gpu1", "east.gpu0"};
    scene.shapes.resize(1), scene.hardware.resize(3), scene.home_workload = {0, 0};
    return scene;
}

// The same with a second model "n" of 1 layer of 2 experts of 4 bytes (numbers 4 and 5) that nobody
// asks for.
inline core::scene two_model_scene() {
    core::scene scene = small_scene();
    scene.cluster.models = scene.demand.models = 2;
    for (auto *per_model : {&scene.cluster.device_call_s, &scene.cluster.device_token_s})
        per_model->assign(6, 0.001);
    scene.cluster.home_call_s.assign(4, 0);
    scene.demand.model_first = {0, 4, 6};
    scene.demand.model_layers = {2, 1}, scene.demand.model_experts = {2, 2};
    scene.demand.model_top_k = scene.demand.model_groups = {1, 1};
    scene.demand.expert_bytes = {10, 4}, scene.demand.hidden_bytes = {10, 10};
    scene.demand.home_model = {1, 0, 1, 0};
    scene.demand.frequency = {0.75, 0.25, 0.5, 0.5, 0, 0, 0.1, 0.9, 0, 1, 0, 0};
    scene.model_names = {"m", "n"};
    scene.shapes.resize(2);
    return scene;
}

inline void give_cloud(core::scene &scene) {
    scene.cluster.cloud_up_bytes_per_s = scene.cluster.cloud_down_bytes_per_s = {100, 100};
    scene.cluster.cloud_s = {0.1, 0.1};
    scene.cluster.cloud_call_s.assign(scene.cluster.models, 0.001);
}

}  // namespace moorage::test

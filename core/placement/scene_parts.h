// scene_parts.h - the steps of make_scene(), in their order. For scene*.cpp only.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "core/placement/scene.h"

namespace moorage::core {

// Model shapes and the numbers of their experts.
status add_models(const cluster_config &config, const std::filesystem::path &base, scene &out);
// Devices of every server: memory, and times of calls. Requires: models.
status add_devices(const cluster_config &config, const std::filesystem::path &base, scene &out);
// Links between servers and to the cloud, by radio and as listed. Requires: models.
status add_links(const cluster_config &config, scene &out);
// Servers, then users with the server that they enter by. Requires: devices.
status add_homes(const cluster_config &config, scene &out);
// What homes ask for. Requires: homes.
status add_demand(const cluster_config &config, scene &out);
// How many tokens of which models alone. Requires: homes.
status add_rates(const cluster_config &config, scene &out);

// An error of the configuration.
inline error wrong(std::string text) { return error{std::move(text), true}; }

// Operations of one expert for one token: two a weight.
double expert_flops(const model_shape &shape);

}  // namespace moorage::core

// scene_parts.h - the steps of make_scene(), in their order. Only for scene*.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "tools/placement/scene.h"

namespace moorage::core {

// Adds model shapes and the numbers of their experts.
status add_models(const cluster_config &config, const std::filesystem::path &base, scene &scene);
// Adds the devices of every server: memory, and times of calls. Requires: models.
status add_devices(const cluster_config &config, const std::filesystem::path &base, scene &scene);
// Adds links between servers and to the cloud, from radio and from the list. Requires: models.
status add_links(const cluster_config &config, scene &scene);
// Adds servers, then users with the server that they enter through. Requires: devices.
status add_homes(const cluster_config &config, scene &scene);
// Adds the experts that homes use. Requires: homes.
status add_demand(const cluster_config &config, scene &scene);
// Adds only the number of tokens of each model. Requires: homes.
status add_rates(const cluster_config &config, scene &scene);

// A configuration error.
inline error wrong(std::string text) { return error{std::move(text), true}; }

// Operations of one expert for one token: two per weight.
double expert_flops(const model_shape &shape);

}  // namespace moorage::core

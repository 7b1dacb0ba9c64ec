// zones.h - clusters with more servers than one plan can cover. They are placed zone by zone.
//
// Matrices of all pairs of servers, and of all homes and experts, grow with the square of a
// cluster. So servers are divided into zones and call only servers of their own zone. Each zone is
// a separate scene, which is planned, checked and judged by itself, in any order or in parallel.
// Zone z of Z has the servers z, z + Z, z + 2 Z ... of the file, so zones are alike if the file
// lists one kind of server after another. The cost is that a copy in another zone cannot serve.
// Without a cloud each zone holds every expert. (Decision 0042.)
//
//   const std::vector<uint32_t> leading = leading_zones(cluster, zone_plans::of_scenes);
//   for (zone z with leading[z] == z) plans[z] = planned(*make_zone(cluster, base, z));
//   zoned_plan joined = join_zones(whole, plans, leading);
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/config/cluster_config.h"
#include "tools/placement/plan.h"
#include "tools/placement/scene.h"

namespace moorage::core {

// Number of servers that are planned together by default ([placement] zone_servers), and its limit.
inline constexpr uint32_t zone_servers_default = 256, zone_servers_max = 1024;

// 1: the cluster is planned as a whole.
uint32_t zones_of(const cluster_config &config);

// Names, devices, homes and their rates of the whole cluster, without links and frequencies.
result<scene> make_outline(const cluster_config &config, const std::filesystem::path &base);

struct zoned_plan {
    plan placement;
    latency_figures figures;
};

// of_scenes: a zone's plan depends only on its scene, so zones with equal scenes share a plan.
// each: it also depends on the zone's number.
enum class zone_plans { of_scenes, each };
// [zones] The zone whose plan each zone uses: itself, or the first one with an equal scene.
std::vector<uint32_t> leading_zones(const cluster_config &config, zone_plans mode);

// If there is only one zone: the cluster itself.
result<scene> make_zone(const cluster_config &config, const std::filesystem::path &base,
                        uint32_t zone);

// Joins the plans of zones, with the whole cluster's numbers. Facts: the number of zones; facts of
// a single zone are dropped. `zones` has checked plans at the leading zones. Requires: `whole` is
// from make_outline().
zoned_plan join_zones(const scene &whole, std::span<const zoned_plan> zones,
                      std::span<const uint32_t> leading);

// The zone's part of a plan of the whole, with the zone's numbers.
plan plan_of_zone(const cluster_config &config, const scene &whole, const plan &whole_plan,
                  uint32_t zone);

}  // namespace moorage::core

// zones.h - clusters of more servers than one plan is made for: placed zone by zone.
//
// Matrices of all pairs of servers, and of all homes and experts, grow with the square of a
// cluster. In zones a server calls those of its own zone alone, and each zone is a scene of its
// own: planned, checked and judged by itself, in any order or at once. Zone z of Z has the
// servers z, z + Z, z + 2 Z ... of the file, so zones are alike where the file lists one kind after
// another. What is lost is what a copy in another zone could have served; without a cloud each zone
// holds every expert. (Decision 0042.)
//
//   const std::vector<uint32_t> leading = leading_zones(cluster, zone_plans::of_scenes);
//   for (zone z with leading[z] == z) plans[z] = planned(*make_zone(cluster, base, z));
//   zoned_plan made = join_zones(whole, plans, leading);
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/config/cluster_config.h"
#include "core/placement/plan.h"
#include "core/placement/scene.h"

namespace moorage::core {

// Servers that are planned together where [placement] zone_servers does not say how many, and more
// than so many are never.
inline constexpr uint32_t zone_servers_default = 256, zone_servers_max = 1024;

// 1: the cluster is planned as one.
uint32_t zones_of(const cluster_config &config);

// Names, devices, homes and their rates of the whole cluster, without what is between them: no
// links, no frequencies.
result<scene> make_outline(const cluster_config &config, const std::filesystem::path &base);

struct zoned_plan {
    plan made;
    latency_figures figures;
};

// What a zone's plan follows from: its scene alone, so that zones of equal scenes have one plan, or
// its number, too.
enum class zone_plans { of_scenes, each };
// [zones] Whose plan each zone has: its own, or that of the first one with an equal scene.
std::vector<uint32_t> leading_zones(const cluster_config &config, zone_plans how);

// The cluster itself, where it is one zone.
result<scene> make_zone(const cluster_config &config, const std::filesystem::path &base,
                        uint32_t zone);

// Plans of zones as one, in the whole's numbers; facts: how many zones, what is of one is left out.
// `zones` has, at leading zones, plans that were checked against their scenes. Requires: `whole` of
// make_outline().
zoned_plan join_zones(const scene &whole, std::span<const zoned_plan> zones,
                      std::span<const uint32_t> leading);

// The zone's part of a plan of the whole, by the zone's numbers.
plan plan_of_zone(const cluster_config &config, const scene &whole, const plan &made,
                  uint32_t zone);

}  // namespace moorage::core

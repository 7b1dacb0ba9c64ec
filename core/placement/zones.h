// zones.h - clusters of more servers than one plan is made for: placed zone by zone.
//
// Matrices of all pairs of servers, and of all homes and experts, grow with the square of a
// cluster. In zones a server calls those of its own zone alone, and each zone is a scene of its
// own: planned, checked and judged by itself, one after another. Zone z of Z has the servers z,
// z + Z, z + 2 Z ... of the file, so zones are alike where the file lists one kind after another.
// What is lost is what a copy in another zone could have served; without a cloud each zone holds
// every expert. (Decision 0042.)
//
//   if (zones_of(cluster) > 1) made = place_in_zones(cluster, base, whole, plan_zone);
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

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
    plan made;  // devices of the whole cluster; facts: how many zones, what is of one is left out
    latency_figures figures;
};
// What a zone's plan follows from: its scene alone, so that zones of equal scenes have one plan, or
// its number, too.
enum class zone_plans { of_scenes, each };
// Calls `plan_zone(scene of a zone, number of zone)` for one after another, of equal ones where how
// says so for the first alone, and joins what they answer, in the whole's numbers. Requires:
// `whole` of make_outline().
result<zoned_plan> place_in_zones(
    const cluster_config &config, const std::filesystem::path &base, const scene &whole,
    const std::function<result<plan>(const scene &, uint32_t)> &plan_zone,
    zone_plans how = zone_plans::each);

// The zone's part of a plan of the whole, by the zone's numbers.
plan plan_of_zone(const cluster_config &config, const scene &whole, const plan &made,
                  uint32_t zone);

}  // namespace moorage::core

// zones.cpp - divides a cluster into zones and joins their plans and figures.
#include "tools/placement/zones.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "tools/placement/scene_parts.h"

namespace moorage::core {

namespace {

// The first device of each server, and one past the last.
std::vector<uint32_t> first_devices(const cluster_arrays &cluster) {
    std::vector<uint32_t> first(cluster.servers + 1, 0);
    for (const uint32_t server : cluster.device_server) ++first[server + 1];
    for (uint32_t n = 0; n < cluster.servers; ++n) first[n + 1] += first[n];
    return first;
}

cluster_config zone_config(const cluster_config &config, uint32_t zone, uint32_t zones) {
    cluster_config part = config;
    part.servers.clear();
    for (size_t n = zone; n < config.servers.size(); n += zones)
        part.servers.push_back(config.servers[n]);
    part.place = format("{}: zone {} of {}", config.place, zone + 1, zones);
    for (cluster_workload &workload : part.workloads) {
        // Above 64 servers the latency does not use sets (moorage/latency.hpp), which take most of
        // the memory.
        if (part.servers.size() > 64) workload.groups_max = 0;
        // Homes of different zones must not draw the same values.
        if (workload.per_user) workload.draw_seed += zone;
        if (workload.models_per_user_max > 0) workload.model_seed += zone;
    }
    return part;
}

bool alike(const cluster_server &a, const cluster_server &b) {
    const bool placed =
        a.location.has_value() == b.location.has_value() &&
        (!a.location || (a.location->x == b.location->x && a.location->y == b.location->y));
    return placed && a.gpus == b.gpus && a.flops == b.flops &&
           a.expert_memory_bytes == b.expert_memory_bytes &&
           a.expert_memory_share == b.expert_memory_share && a.host_experts == b.host_experts &&
           a.load_bytes_per_s == b.load_bytes_per_s && a.workload == b.workload;
}

// Does a link's end name the same servers, by their order, in two zones?
bool alike(const std::string &end, const cluster_config &a, const cluster_config &b) {
    if (end == "*") return true;
    for (size_t n = 0; n < a.servers.size(); ++n)
        if (is_named(a.servers[n].name, end) != is_named(b.servers[n].name, end)) return false;
    return true;
}

// Are two zones of one description equal but for their servers' names, so that all arrays of their
// scenes are equal?
bool alike(const cluster_config &a, const cluster_config &b) {
    if (a.servers.size() != b.servers.size()) return false;
    for (size_t n = 0; n < a.servers.size(); ++n)
        if (!alike(a.servers[n], b.servers[n])) return false;
    for (size_t w = 0; w < a.workloads.size(); ++w)
        if (a.workloads[w].draw_seed != b.workloads[w].draw_seed ||
            a.workloads[w].model_seed != b.workloads[w].model_seed)
            return false;
    return std::all_of(a.links.begin(), a.links.end(), [&](const cluster_link &link) {
        return alike(link.source, a, b) && alike(link.target, a, b);
    });
}

// Figures of all zones, by the whole cluster's homes.
class joined_figures {
public:
    explicit joined_figures(const scene &whole) : tokens_per_s_(whole.demand.home_tokens_per_s) {
        joined_.home_token_s.resize(tokens_per_s_.size());
        joined_.home_local_ratio.resize(tokens_per_s_.size(), 1);
    }
    void add(const latency_figures &zone, uint32_t first, uint32_t stride) {
        double tokens_per_s = 0;
        for (uint32_t h = 0; h < zone.home_token_s.size(); ++h) {
            const uint32_t home = first + h * stride;
            joined_.home_token_s[home] = zone.home_token_s[h];
            joined_.home_local_ratio[home] = zone.home_local_ratio[h];
            tokens_per_s += tokens_per_s_[home];
        }
        token_s_ += tokens_per_s * zone.token_s, empty_s_ += tokens_per_s * zone.empty_s;
        batch_token_s_ += tokens_per_s * zone.batch_token_s;
        asked_per_s_ += tokens_per_s;
        joined_.calls_per_s += zone.calls_per_s;
        joined_.remote_calls_per_s += zone.remote_calls_per_s;
        joined_.absent += zone.absent;
    }
    latency_figures joined() {
        if (asked_per_s_ > 0)
            joined_.token_s = token_s_ / asked_per_s_, joined_.empty_s = empty_s_ / asked_per_s_;
        if (asked_per_s_ > 0) joined_.batch_token_s = batch_token_s_ / asked_per_s_;
        joined_.saved_s = joined_.empty_s - joined_.token_s;
        if (joined_.calls_per_s > 0)
            joined_.local_ratio = 1 - joined_.remote_calls_per_s / joined_.calls_per_s;
        return std::move(joined_);
    }

private:
    const std::vector<double> &tokens_per_s_;  // [homes]
    latency_figures joined_;
    double token_s_ = 0, empty_s_ = 0, batch_token_s_ = 0, asked_per_s_ = 0;
};

// The whole cluster's devices, indexed by the zone's devices. Server n of the zone is zone + n *
// zones.
std::vector<uint32_t> devices_of_zone(const scene &whole, uint32_t zone, uint32_t zones) {
    const std::vector<uint32_t> first = first_devices(whole.cluster);
    std::vector<uint32_t> devices;
    for (uint32_t server = zone; server < whole.cluster.servers; server += zones)
        for (uint32_t d = first[server]; d < first[server + 1]; ++d) devices.push_back(d);
    return devices;
}

}  // namespace

uint32_t zones_of(const cluster_config &config) {
    const auto servers = static_cast<uint32_t>(config.servers.size());
    uint32_t zone_size = config.zone_servers;
    if (zone_size == 0) zone_size = servers <= zone_servers_max ? servers : zone_servers_default;
    return (servers + zone_size - 1) / zone_size;
}

result<scene> make_outline(const cluster_config &config, const std::filesystem::path &base) {
    if (!config.users.empty())
        return error{format("{}: {} servers are placed in zones, and users enter by the nearest of "
                            "all; leave out [[cluster.users]], or describe {} servers at most "
                            "and no [placement] zone_servers",
                            config.place, config.servers.size(), zone_servers_max),
                     true};
    scene outline;
    if (const status added = add_models(config, base, outline); !added) return added.failure();
    if (const status added = add_devices(config, base, outline); !added) return added.failure();
    if (const status added = add_homes(config, outline); !added) return added.failure();
    // Tells that the whole cluster has a cloud, without its rates.
    if (config.cloud) outline.cluster.cloud_s.assign(1, config.cloud->latency_s);
    if (const status added = add_rates(config, outline); !added) return added.failure();
    return outline;
}

std::vector<uint32_t> leading_zones(const cluster_config &config, zone_plans mode) {
    const uint32_t zones = zones_of(config);
    std::vector<uint32_t> leading;
    std::vector<std::pair<uint32_t, cluster_config>> known;
    for (uint32_t zone = 0; zone < zones; ++zone) {
        leading.push_back(zone);
        if (mode == zone_plans::each) continue;
        cluster_config part = zone_config(config, zone, zones);
        const auto found = std::ranges::find_if(
            known, [&](const auto &entry) { return alike(entry.second, part); });
        if (found != known.end())
            leading.back() = found->first;
        else
            known.emplace_back(zone, std::move(part));
    }
    return leading;
}

result<scene> make_zone(const cluster_config &config, const std::filesystem::path &base,
                        uint32_t zone) {
    const uint32_t zones = zones_of(config);
    return make_scene(zones == 1 ? config : zone_config(config, zone, zones), base);
}

zoned_plan join_zones(const scene &whole, std::span<const zoned_plan> zones,
                      std::span<const uint32_t> leading) {
    const auto count = static_cast<uint32_t>(zones.size());
    zoned_plan joined;
    joined_figures figures(whole);
    for (uint32_t zone = 0; zone < count; ++zone) {
        const zoned_plan &leader = zones[leading[zone]];
        figures.add(leader.figures, zone, count);
        const std::vector<uint32_t> devices = devices_of_zone(whole, zone, count);
        for (const moorage_copy &copy : leader.placement.copies)
            joined.placement.copies.push_back({copy.expert, devices[copy.device]});
        if (leading[zone] == zone) joined.placement.seconds += leader.placement.seconds;
        joined.placement.policy = leader.placement.policy;
    }
    std::sort(joined.placement.copies.begin(), joined.placement.copies.end(),
              [](const moorage_copy &a, const moorage_copy &b) {
                  return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
              });
    joined.placement.facts.push_back({"zones", static_cast<double>(count)});
    joined.figures = figures.joined();
    return joined;
}

plan plan_of_zone(const cluster_config &config, const scene &whole, const plan &whole_plan,
                  uint32_t zone) {
    constexpr uint32_t elsewhere = UINT32_MAX;
    std::vector<uint32_t> device_in_zone(whole.cluster.devices(),
                                         elsewhere);  // by the zone's numbers
    const std::vector<uint32_t> devices = devices_of_zone(whole, zone, zones_of(config));
    for (uint32_t d = 0; d < devices.size(); ++d) device_in_zone[devices[d]] = d;
    plan part;
    part.policy = whole_plan.policy;
    for (const moorage_copy &copy : whole_plan.copies)
        if (device_in_zone[copy.device] != elsewhere)
            part.copies.push_back({copy.expert, device_in_zone[copy.device]});
    return part;
}

}  // namespace moorage::core

// zones.cpp - cuts a cluster into zones and joins their plans and figures.
#include "core/placement/zones.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/placement/scene_parts.h"

namespace moorage::core {

namespace {

// First device of each server, and one more.
std::vector<uint32_t> first_devices(const cluster_arrays &of) {
    std::vector<uint32_t> first(of.servers + 1, 0);
    for (const uint32_t server : of.device_server) ++first[server + 1];
    for (uint32_t n = 0; n < of.servers; ++n) first[n + 1] += first[n];
    return first;
}

cluster_config zone_config(const cluster_config &config, uint32_t zone, uint32_t zones) {
    cluster_config part = config;
    part.servers.clear();
    for (size_t n = zone; n < config.servers.size(); n += zones)
        part.servers.push_back(config.servers[n]);
    part.place = format("{}: zone {} of {}", config.place, zone + 1, zones);
    for (cluster_workload &one : part.workloads) {
        // Beyond 64 servers no latency is of sets (moorage/latency.hpp), which take most memory.
        if (part.servers.size() > 64) one.groups_max = 0;
        // What each home draws for itself is not what those of another zone draw.
        if (one.per_user) one.draw_seed += zone;
        if (one.models_per_user_max > 0) one.model_seed += zone;
    }
    return part;
}

bool alike(const cluster_server &a, const cluster_server &b) {
    const bool placed = a.at.has_value() == b.at.has_value() &&
                        (!a.at || (a.at->x == b.at->x && a.at->y == b.at->y));
    return placed && a.gpus == b.gpus && a.flops == b.flops &&
           a.expert_memory_bytes == b.expert_memory_bytes &&
           a.expert_memory_share == b.expert_memory_share && a.host_experts == b.host_experts &&
           a.load_bytes_per_s == b.load_bytes_per_s && a.workload == b.workload;
}

// Whether a link's end names the same servers by their order in two zones.
bool alike(const std::string &end, const cluster_config &a, const cluster_config &b) {
    if (end == "*") return true;
    for (size_t n = 0; n < a.servers.size(); ++n)
        if (is_named(a.servers[n].name, end) != is_named(b.servers[n].name, end)) return false;
    return true;
}

// Whether two zones of one description are the same but for the names of their servers, so that all
// arrays of their scenes are equal.
bool alike(const cluster_config &a, const cluster_config &b) {
    if (a.servers.size() != b.servers.size()) return false;
    for (size_t n = 0; n < a.servers.size(); ++n)
        if (!alike(a.servers[n], b.servers[n])) return false;
    for (size_t w = 0; w < a.workloads.size(); ++w)
        if (a.workloads[w].draw_seed != b.workloads[w].draw_seed ||
            a.workloads[w].model_seed != b.workloads[w].model_seed)
            return false;
    return std::all_of(a.links.begin(), a.links.end(), [&](const cluster_link &link) {
        return alike(link.from, a, b) && alike(link.to, a, b);
    });
}

// A zone with its plan; of its scene what is needed beside them, as zones are large and many.
struct planned_zone {
    cluster_config config;
    cluster_arrays cluster;
    std::vector<double> tokens_per_s;  // [homes]
    plan made;
    latency_figures figures;
};

using zone_planner = std::function<result<plan>(const scene &, uint32_t)>;

result<planned_zone> plan_of(cluster_config part, const std::filesystem::path &base,
                             const zone_planner &plan_zone, uint32_t zone, uint32_t zones) {
    const result<scene> of = make_scene(part, base);
    if (!of) return of.failure();
    result<plan> made = plan_zone(*of, zone);
    if (!made) return error{format("zone {} of {}: {}", zone + 1, zones, made.failure().text)};
    planned_zone all{std::move(part), of->cluster, of->demand.home_tokens_per_s, {}, {}};
    all.figures = predict(*of, *made);
    all.made = std::move(made).value();
    return all;
}

// Figures of all zones, by home of the whole.
class joined_figures {
public:
    explicit joined_figures(uint32_t homes) {
        all_.home_token_s.resize(homes);
        all_.home_local_ratio.resize(homes, 1);
    }
    void add(const planned_zone &of, uint32_t first, uint32_t stride) {
        const latency_figures &zone = of.figures;
        double tokens_per_s = 0;
        for (uint32_t h = 0; h < of.cluster.homes; ++h) {
            all_.home_token_s[first + h * stride] = zone.home_token_s[h];
            all_.home_local_ratio[first + h * stride] = zone.home_local_ratio[h];
            tokens_per_s += of.tokens_per_s[h];
        }
        token_s_ += tokens_per_s * zone.token_s, empty_s_ += tokens_per_s * zone.empty_s;
        batch_token_s_ += tokens_per_s * zone.batch_token_s;
        tokens_per_s_ += tokens_per_s;
        all_.calls_per_s += zone.calls_per_s;
        all_.remote_calls_per_s += zone.remote_calls_per_s;
        all_.absent += zone.absent;
    }
    latency_figures joined() {
        if (tokens_per_s_ > 0)
            all_.token_s = token_s_ / tokens_per_s_, all_.empty_s = empty_s_ / tokens_per_s_;
        if (tokens_per_s_ > 0) all_.batch_token_s = batch_token_s_ / tokens_per_s_;
        all_.saved_s = all_.empty_s - all_.token_s;
        if (all_.calls_per_s > 0) all_.local_ratio = 1 - all_.remote_calls_per_s / all_.calls_per_s;
        return std::move(all_);
    }

private:
    latency_figures all_;
    double token_s_ = 0, empty_s_ = 0, batch_token_s_ = 0, tokens_per_s_ = 0;
};

// The zone's copies by the whole's devices: server n of the zone is zone + n * zones.
void add_copies(const planned_zone &of, const scene &whole, uint32_t zone, uint32_t zones,
                std::vector<moorage_copy> &out) {
    const std::vector<uint32_t> own = first_devices(of.cluster), all = first_devices(whole.cluster);
    for (const moorage_copy &copy : of.made.copies) {
        const uint32_t server = of.cluster.device_server[copy.device];
        out.push_back({copy.expert, all[zone + server * zones] + (copy.device - own[server])});
    }
}

}  // namespace

uint32_t zones_of(const cluster_config &config) {
    const auto servers = static_cast<uint32_t>(config.servers.size());
    uint32_t each = config.zone_servers;
    if (each == 0) each = servers <= zone_servers_max ? servers : zone_servers_default;
    return (servers + each - 1) / each;
}

result<scene> make_outline(const cluster_config &config, const std::filesystem::path &base) {
    if (!config.users.empty())
        return error{format("{}: {} servers are placed in zones, and users enter by the nearest of "
                            "all; leave out [[cluster.users]], or describe {} servers at most "
                            "and no [placement] zone_servers",
                            config.place, config.servers.size(), zone_servers_max),
                     true};
    scene made;
    if (const status added = add_models(config, base, made); !added) return added.failure();
    if (const status added = add_devices(config, base, made); !added) return added.failure();
    if (const status added = add_homes(config, made); !added) return added.failure();
    // The cloud of the whole is said, for who asks whether there is one; none of its rates.
    if (config.cloud) made.cluster.cloud_s.assign(1, config.cloud->latency_s);
    if (const status added = add_rates(config, made); !added) return added.failure();
    return made;
}

result<zoned_plan> place_in_zones(
    const cluster_config &config, const std::filesystem::path &base, const scene &whole,
    const std::function<result<plan>(const scene &, uint32_t)> &plan_zone, zone_plans how) {
    const uint32_t zones = zones_of(config);
    zoned_plan all;
    joined_figures figures(whole.cluster.homes);
    std::vector<planned_zone> known;
    for (uint32_t zone = 0; zone < zones; ++zone) {
        cluster_config part = zone_config(config, zone, zones);
        auto at = std::find_if(known.begin(), known.end(), [&](const planned_zone &each) {
            return how == zone_plans::of_scenes && alike(each.config, part);
        });
        if (at == known.end()) {
            if (how == zone_plans::each) known.clear();
            auto planned = plan_of(std::move(part), base, plan_zone, zone, zones);
            if (!planned) return planned.failure();
            all.made.seconds += planned->made.seconds;
            at = known.insert(known.end(), std::move(planned).value());
        }
        figures.add(*at, zone, zones);
        add_copies(*at, whole, zone, zones, all.made.copies);
        all.made.policy = at->made.policy;
    }
    std::sort(all.made.copies.begin(), all.made.copies.end(),
              [](const moorage_copy &a, const moorage_copy &b) {
                  return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
              });
    all.made.facts.push_back({"zones", static_cast<double>(zones)});
    all.figures = figures.joined();
    return all;
}

plan plan_of_zone(const cluster_config &config, const scene &whole, const plan &made,
                  uint32_t zone) {
    const uint32_t zones = zones_of(config);
    const std::vector<uint32_t> all = first_devices(whole.cluster);
    std::vector<uint32_t> own(whole.cluster.servers, 0);  // first device by the zone's numbers
    uint32_t devices = 0;
    for (uint32_t n = zone; n < whole.cluster.servers; n += zones) {
        own[n] = devices;
        devices += all[n + 1] - all[n];
    }
    plan part;
    part.policy = made.policy;
    for (const moorage_copy &copy : made.copies) {
        const uint32_t server = whole.cluster.device_server[copy.device];
        if (server % zones == zone)
            part.copies.push_back({copy.expert, own[server] + (copy.device - all[server])});
    }
    return part;
}

}  // namespace moorage::core

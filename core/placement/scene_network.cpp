// scene_network.cpp - devices, links, the cloud and homes of a scene.
#include <algorithm>
#include <limits>
#include <map>

#include "core/base/text.h"
#include "core/execute/cost_model.h"
#include "core/placement/radio.h"
#include "core/placement/scene_parts.h"

namespace moorage::core {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// The largest non-expert weights that tokens entering here can need.
uint64_t non_expert_bytes(const cluster_config &config, const cluster_server &server,
                          const scene &of) {
    uint64_t bytes = 0;
    for (const cluster_workload &workload : config.workloads) {
        if (workload.name != server.workload) continue;
        for (const auto &[name, share] : workload.models)
            for (size_t model = 0; model < of.shapes.size(); ++model)
                if (of.model_names[model] == name) bytes += of.shapes[model].non_expert_bytes;
    }
    return bytes;
}

result<uint64_t> gpu_memory(const cluster_config &config, const cluster_server &server,
                            const hardware_profile &gpu, const scene &of) {
    const uint64_t all = gpu.device.memory_bytes;
    if (server.expert_memory_share > 0)
        return static_cast<uint64_t>(server.expert_memory_share * static_cast<double>(all));
    const std::optional<uint64_t> wanted = server.expert_memory_bytes;
    if (wanted && *wanted > all)
        return wrong(
            format("{}: [[cluster.servers]] {}: expert_memory_bytes is {}, and its {} has "
                   "{} in all; choose less",
                   server.place, server.name, *wanted, gpu.id, all));
    if (wanted) return *wanted;
    const uint64_t taken = gpu.device.reserved_bytes + non_expert_bytes(config, server, of);
    if (taken >= all)
        return wrong(
            format("{}: [[cluster.servers]] {}: non-expert weights and reserve take {} "
                   "bytes, and its {} has {}; use a larger one or fewer models",
                   server.place, server.name, taken, gpu.id, all));
    return all - taken;
}

void add_gpu_times(const scene &of, const hardware_profile &gpu, cluster_arrays &out) {
    for (model_shape shape : of.shapes) {
        // Experts that are stored in fewer bytes than the shape says are read faster, but not
        // computed faster.
        shape.weight_bytes = static_cast<double>(shape.expert_bytes) / (expert_flops(shape) / 2);
        const cost_model costs(gpu, shape);
        const uint64_t one = costs.gpu_expert_ns(1, 1);
        out.device_call_s.push_back(static_cast<double>(one) * 1e-9);
        out.device_token_s.push_back(static_cast<double>(costs.gpu_expert_ns(33, 1) - one) * 1e-9 /
                                     32);
    }
}

// Eq. (6): the device's rate is split among the experts of a layer.
double ideal_call_s(const model_shape &shape, double flops) {
    return expert_flops(shape) * shape.experts / flops;
}

// At a lower rate a message of some kilobytes takes minutes. Such a receiver is out of range.
constexpr double radio_bits_per_s_min = 1000;
bool is_rate(double bits_per_s) {
    return bits_per_s >= radio_bits_per_s_min && bits_per_s < infinite;
}
error unreached(const cluster_config &config, const std::string &names, double rate) {
    return wrong(
        format("{}: {} out of radio range: {:.4g} bit/s, of which {:g} are needed; move it nearer, "
               "or correct power and noise of [cluster.radio]",
               config.place, names, rate, radio_bits_per_s_min));
}

// Checks pairs that no [[cluster.links]] connects.
status check_radio_links(const cluster_config &config, const cluster_arrays &cluster) {
    if (!config.radio || config.radio->server_bandwidth_hz == 0) return success();
    for (size_t from = 0; from < cluster.servers; ++from)
        for (size_t to = 0; to < cluster.servers; ++to) {
            const double bits = cluster.link_bytes_per_s[from * cluster.servers + to] * 8;
            if (from == to || is_rate(bits)) continue;
            const std::string pair =
                format("{} and {} are", config.servers[from].name, config.servers[to].name);
            return unreached(config, pair, bits);
        }
    return success();
}

// Radio rates between all servers, infinite from a server to itself. Without radio: no links.
void add_radio_links(const cluster_config &config, cluster_arrays &out) {
    const size_t count = out.servers;
    for (size_t from = 0; from < count; ++from)
        for (size_t to = 0; to < count; ++to) {
            double &rate = out.link_bytes_per_s[from * count + to];
            if (from == to) rate = infinite;
            if (from == to || !config.radio || config.radio->server_bandwidth_hz == 0) continue;
            const double bits = bits_per_s(
                *config.radio, {config.radio->server_bandwidth_hz, config.radio->server_power_w,
                                distance_m(*config.servers[from].at, *config.servers[to].at)});
            rate = bits / 8;
        }
}

}  // namespace

status add_devices(const cluster_config &config, const std::filesystem::path &base, scene &out) {
    cluster_arrays &cluster = out.cluster;
    std::map<std::string, hardware_profile> known;
    cluster.servers = static_cast<uint32_t>(config.servers.size());
    for (uint32_t n = 0; n < cluster.servers; ++n) {
        const cluster_server &server = config.servers[n];
        out.server_names.push_back(server.name);
        for (size_t gpu = 0; gpu < server.gpus.size(); ++gpu) {
            auto profile = known.find(server.gpus[gpu]);
            if (profile == known.end()) {
                auto loaded = load_hardware({server.gpus[gpu], "", "", base});
                if (!loaded)
                    return wrong(format("{}: [[cluster.servers]] {}: {}", server.place, server.name,
                                        loaded.failure().text));
                profile = known.emplace(server.gpus[gpu], std::move(*loaded)).first;
            }
            const hardware_profile &hardware = profile->second;
            const result<uint64_t> bytes = gpu_memory(config, server, hardware, out);
            if (!bytes) return bytes.failure();
            cluster.device_bytes.push_back(*bytes);
            const double rate =
                std::min(hardware.link.h2d_bytes_per_s, hardware.node.memory_bytes_per_s);
            cluster.device_load_bytes_per_s.push_back(
                server.load_bytes_per_s > 0 ? server.load_bytes_per_s : rate);
            add_gpu_times(out, hardware, cluster);
            out.device_names.push_back(format("{}.gpu{}", server.name, gpu));
            out.hardware.push_back(hardware);
        }
        if (server.gpus.empty()) {
            cluster.device_bytes.push_back(server.expert_memory_bytes.value_or(0));
            cluster.device_load_bytes_per_s.push_back(
                server.load_bytes_per_s > 0 ? server.load_bytes_per_s : infinite);
            for (const model_shape &shape : out.shapes) {
                cluster.device_call_s.push_back(ideal_call_s(shape, server.flops));
                cluster.device_token_s.push_back(ideal_call_s(shape, server.flops));
            }
            out.device_names.push_back(server.name);
            out.hardware.emplace_back();
        }
        cluster.device_server.resize(cluster.device_bytes.size(), n);
    }
    return success();
}

status add_links(const cluster_config &config, scene &out) {
    cluster_arrays &cluster = out.cluster;
    const size_t count = cluster.servers;
    cluster.link_bytes_per_s.assign(count * count, 0.0);
    cluster.link_s.assign(count * count, 0.0);
    add_radio_links(config, cluster);
    for (const cluster_link &link : config.links)
        for (size_t from = 0; from < count; ++from) {
            if (!is_named(config.servers[from].name, link.from)) continue;
            for (size_t to = 0; to < count; ++to) {
                if (from == to || !is_named(config.servers[to].name, link.to)) continue;
                for (const size_t at : {from * count + to, to * count + from}) {
                    if (at != from * count + to && !link.symmetric) continue;
                    cluster.link_bytes_per_s[at] = link.bits_per_s / 8;
                    cluster.link_s[at] = link.latency_s;
                }
            }
        }
    if (const status linked = check_radio_links(config, cluster); !linked) return linked;
    if (!config.cloud) return success();
    const double rate = config.cloud->bits_per_s > 0 ? config.cloud->bits_per_s / 8 : infinite;
    cluster.cloud_up_bytes_per_s.assign(count, rate);
    cluster.cloud_down_bytes_per_s.assign(count, rate);
    cluster.cloud_s.assign(count, config.cloud->latency_s);
    for (const model_shape &shape : out.shapes)
        cluster.cloud_call_s.push_back(ideal_call_s(shape, config.cloud->flops));
    return success();
}

status add_homes(const cluster_config &config, scene &out) {
    cluster_arrays &cluster = out.cluster;
    for (uint32_t n = 0; n < cluster.servers; ++n) {
        out.home_names.push_back(config.servers[n].name);
        cluster.home_server.push_back(n);
        cluster.home_up_bytes_per_s.push_back(infinite);
        cluster.home_down_bytes_per_s.push_back(infinite);
        // The time of its first device for all chosen experts. Servers hold only what is placed on
        // them.
        const auto at =
            std::lower_bound(cluster.device_server.begin(), cluster.device_server.end(), n);
        const size_t device = static_cast<size_t>(at - cluster.device_server.begin());
        for (uint32_t model = 0; model < cluster.models; ++model) {
            const double call_s = cluster.device_call_s[device * cluster.models + model];
            const bool ideal = out.hardware[device].id.empty();
            cluster.home_call_s.push_back(ideal ? call_s : call_s * out.shapes[model].top_k);
        }
    }
    for (const cluster_user &user : config.users) {
        const cluster_radio &radio = *config.radio;
        double least_s = infinite, up = 0, down = 0;
        uint32_t nearest = 0;
        for (uint32_t n = 0; n < cluster.servers; ++n) {
            const double distance = distance_m(*user.at, *config.servers[n].at);
            const double here_up =
                bits_per_s(radio, {radio.user_bandwidth_hz, radio.user_power_w, distance});
            const double here_down =
                bits_per_s(radio, {radio.user_bandwidth_hz, radio.server_power_w, distance});
            const double bit_s = 1 / here_up + 1 / here_down;
            if (!(bit_s < least_s)) continue;
            least_s = bit_s;
            up = here_up;
            down = here_down;
            nearest = n;
        }
        if (!is_rate(up) || !is_rate(down))
            return unreached(config, user.name + " is", std::min(up, down));
        out.home_names.push_back(user.name);
        cluster.home_server.push_back(nearest);
        cluster.home_up_bytes_per_s.push_back(up / 8);
        cluster.home_down_bytes_per_s.push_back(down / 8);
        // A user without a processor holds no experts, so its time is never used.
        for (const model_shape &shape : out.shapes)
            cluster.home_call_s.push_back(user.flops > 0 ? ideal_call_s(shape, user.flops) : 0);
    }
    cluster.homes = static_cast<uint32_t>(out.home_names.size());
    return success();
}

}  // namespace moorage::core

// scene_network.cpp - devices, links, the cloud and homes of a scene.
#include <algorithm>
#include <limits>
#include <map>

#include "core/base/text.h"
#include "core/execute/cost_model.h"
#include "tools/placement/radio.h"
#include "tools/placement/scene_parts.h"

namespace moorage::core {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// The largest non-expert weights that tokens entering here can need.
uint64_t non_expert_bytes(const cluster_config &config, const cluster_server &server,
                          const scene &scene) {
    uint64_t bytes = 0;
    for (const cluster_workload &workload : config.workloads) {
        if (workload.name != server.workload) continue;
        for (const auto &[name, share] : workload.models)
            for (size_t model = 0; model < scene.shapes.size(); ++model)
                if (scene.model_names[model] == name) bytes += scene.shapes[model].non_expert_bytes;
    }
    return bytes;
}

result<uint64_t> gpu_memory(const cluster_config &config, const cluster_server &server,
                            const hardware_profile &gpu, const scene &scene) {
    const uint64_t total_bytes = gpu.device.memory_bytes;
    if (server.expert_memory_share > 0)
        return static_cast<uint64_t>(server.expert_memory_share * static_cast<double>(total_bytes));
    const std::optional<uint64_t> wanted = server.expert_memory_bytes;
    if (wanted && *wanted > total_bytes)
        return wrong(
            format("{}: [[cluster.servers]] {}: expert_memory_bytes is {}, and its {} has "
                   "{} in all; choose less",
                   server.place, server.name, *wanted, gpu.id, total_bytes));
    if (wanted) return *wanted;
    const uint64_t taken = gpu.device.reserved_bytes + non_expert_bytes(config, server, scene);
    if (taken >= total_bytes)
        return wrong(
            format("{}: [[cluster.servers]] {}: non-expert weights and reserve take {} "
                   "bytes, and its {} has {}; use a larger one or fewer models",
                   server.place, server.name, taken, gpu.id, total_bytes));
    return total_bytes - taken;
}

void add_gpu_times(const scene &scene, const hardware_profile &gpu, cluster_arrays &cluster) {
    for (model_shape shape : scene.shapes) {
        // Experts that are stored in fewer bytes than the shape says are read faster, but not
        // computed faster.
        shape.weight_bytes = static_cast<double>(shape.expert_bytes) / (expert_flops(shape) / 2);
        const cost_model costs(gpu, shape);
        const uint64_t one_token_ns = costs.gpu_expert_ns(1, 1);
        cluster.device_call_s.push_back(static_cast<double>(one_token_ns) * 1e-9);
        cluster.device_token_s.push_back(
            static_cast<double>(costs.gpu_expert_ns(33, 1) - one_token_ns) * 1e-9 / 32);
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
    for (size_t source = 0; source < cluster.servers; ++source)
        for (size_t target = 0; target < cluster.servers; ++target) {
            const double bits = cluster.link_bytes_per_s[source * cluster.servers + target] * 8;
            if (source == target || is_rate(bits)) continue;
            const std::string pair =
                format("{} and {} are", config.servers[source].name, config.servers[target].name);
            return unreached(config, pair, bits);
        }
    return success();
}

// Radio rates between all servers, infinite from a server to itself. Without radio: no links.
void add_radio_links(const cluster_config &config, cluster_arrays &cluster) {
    const size_t count = cluster.servers;
    for (size_t source = 0; source < count; ++source)
        for (size_t target = 0; target < count; ++target) {
            double &rate = cluster.link_bytes_per_s[source * count + target];
            if (source == target) rate = infinite;
            if (source == target || !config.radio || config.radio->server_bandwidth_hz == 0)
                continue;
            const double bits = bits_per_s(
                *config.radio,
                {config.radio->server_bandwidth_hz, config.radio->server_power_w,
                 distance_m(*config.servers[source].location, *config.servers[target].location)});
            rate = bits / 8;
        }
}

}  // namespace

status add_devices(const cluster_config &config, const std::filesystem::path &base, scene &scene) {
    cluster_arrays &cluster = scene.cluster;
    std::map<std::string, hardware_profile> known;
    cluster.servers = static_cast<uint32_t>(config.servers.size());
    for (uint32_t n = 0; n < cluster.servers; ++n) {
        const cluster_server &server = config.servers[n];
        scene.server_names.push_back(server.name);
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
            const result<uint64_t> bytes = gpu_memory(config, server, hardware, scene);
            if (!bytes) return bytes.failure();
            cluster.device_bytes.push_back(*bytes);
            const double rate =
                std::min(hardware.link.h2d_bytes_per_s, hardware.node.memory_bytes_per_s);
            cluster.device_load_bytes_per_s.push_back(
                server.load_bytes_per_s > 0 ? server.load_bytes_per_s : rate);
            add_gpu_times(scene, hardware, cluster);
            scene.device_names.push_back(format("{}.gpu{}", server.name, gpu));
            scene.hardware.push_back(hardware);
        }
        if (server.gpus.empty()) {
            cluster.device_bytes.push_back(server.expert_memory_bytes.value_or(0));
            cluster.device_load_bytes_per_s.push_back(
                server.load_bytes_per_s > 0 ? server.load_bytes_per_s : infinite);
            for (const model_shape &shape : scene.shapes) {
                cluster.device_call_s.push_back(ideal_call_s(shape, server.flops));
                cluster.device_token_s.push_back(ideal_call_s(shape, server.flops));
            }
            scene.device_names.push_back(server.name);
            scene.hardware.emplace_back();
        }
        cluster.device_server.resize(cluster.device_bytes.size(), n);
    }
    return success();
}

status add_links(const cluster_config &config, scene &scene) {
    cluster_arrays &cluster = scene.cluster;
    const size_t count = cluster.servers;
    cluster.link_bytes_per_s.assign(count * count, 0.0);
    cluster.link_s.assign(count * count, 0.0);
    add_radio_links(config, cluster);
    for (const cluster_link &link : config.links)
        for (size_t source = 0; source < count; ++source) {
            if (!is_named(config.servers[source].name, link.source)) continue;
            for (size_t target = 0; target < count; ++target) {
                if (source == target || !is_named(config.servers[target].name, link.target))
                    continue;
                for (const size_t index : {source * count + target, target * count + source}) {
                    if (index != source * count + target && !link.symmetric) continue;
                    cluster.link_bytes_per_s[index] = link.bits_per_s / 8;
                    cluster.link_s[index] = link.latency_s;
                }
            }
        }
    if (const status linked = check_radio_links(config, cluster); !linked) return linked;
    if (!config.cloud) return success();
    const double rate = config.cloud->bits_per_s > 0 ? config.cloud->bits_per_s / 8 : infinite;
    cluster.cloud_up_bytes_per_s.assign(count, rate);
    cluster.cloud_down_bytes_per_s.assign(count, rate);
    cluster.cloud_s.assign(count, config.cloud->latency_s);
    for (const model_shape &shape : scene.shapes)
        cluster.cloud_call_s.push_back(ideal_call_s(shape, config.cloud->flops));
    return success();
}

status add_homes(const cluster_config &config, scene &scene) {
    cluster_arrays &cluster = scene.cluster;
    for (uint32_t n = 0; n < cluster.servers; ++n) {
        scene.home_names.push_back(config.servers[n].name);
        cluster.home_server.push_back(n);
        cluster.home_up_bytes_per_s.push_back(infinite);
        cluster.home_down_bytes_per_s.push_back(infinite);
        // The time of its first device for all chosen experts. Servers hold only what is placed on
        // them.
        const auto first_device =
            std::lower_bound(cluster.device_server.begin(), cluster.device_server.end(), n);
        const size_t device = static_cast<size_t>(first_device - cluster.device_server.begin());
        for (uint32_t model = 0; model < cluster.models; ++model) {
            const double call_s = cluster.device_call_s[device * cluster.models + model];
            const bool ideal = scene.hardware[device].id.empty();
            cluster.home_call_s.push_back(ideal ? call_s : call_s * scene.shapes[model].top_k);
        }
    }
    for (const cluster_user &user : config.users) {
        const cluster_radio &radio = *config.radio;
        double least_s = infinite, up_bits_per_s = 0, down_bits_per_s = 0;
        uint32_t nearest = 0;
        for (uint32_t n = 0; n < cluster.servers; ++n) {
            const double distance = distance_m(*user.location, *config.servers[n].location);
            const double server_up_bits_per_s =
                bits_per_s(radio, {radio.user_bandwidth_hz, radio.user_power_w, distance});
            const double server_down_bits_per_s =
                bits_per_s(radio, {radio.user_bandwidth_hz, radio.server_power_w, distance});
            const double bit_s = 1 / server_up_bits_per_s + 1 / server_down_bits_per_s;
            if (!(bit_s < least_s)) continue;
            least_s = bit_s;
            up_bits_per_s = server_up_bits_per_s;
            down_bits_per_s = server_down_bits_per_s;
            nearest = n;
        }
        if (!is_rate(up_bits_per_s) || !is_rate(down_bits_per_s))
            return unreached(config, user.name + " is", std::min(up_bits_per_s, down_bits_per_s));
        scene.home_names.push_back(user.name);
        cluster.home_server.push_back(nearest);
        cluster.home_up_bytes_per_s.push_back(up_bits_per_s / 8);
        cluster.home_down_bytes_per_s.push_back(down_bits_per_s / 8);
        // A user without a processor holds no experts, so its time is never used.
        for (const model_shape &shape : scene.shapes)
            cluster.home_call_s.push_back(user.flops > 0 ? ideal_call_s(shape, user.flops) : 0);
    }
    cluster.homes = static_cast<uint32_t>(scene.home_names.size());
    return success();
}

}  // namespace moorage::core

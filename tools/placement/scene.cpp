// scene.cpp - make_scene(), the views of its arrays, and the checks of the whole scene.
#include "tools/placement/scene.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "tools/placement/scene_parts.h"
#include "tools/placement/zones.h"

namespace moorage::core {

namespace {

constexpr uint64_t experts_max = uint64_t{1} << 22;

// Without a cloud, checks that memory holds one copy of every expert that some home uses.
status check_memory(const cluster_config &config, const scene &scene) {
    double needed_bytes = 0, available_bytes = 0;
    uint64_t smallest = UINT64_MAX, copies = 0, slots = 0;
    uint32_t asked = 0;
    for (const uint64_t bytes : scene.cluster.device_bytes)
        available_bytes += static_cast<double>(bytes);
    for (uint32_t model = 0; model < scene.demand.models; ++model) {
        if (!scene.demand.is_requested(model)) continue;
        ++asked;
        const uint64_t bytes = scene.demand.expert_bytes[model];
        const uint64_t count =
            scene.demand.model_first[model + 1] - scene.demand.model_first[model];
        needed_bytes += static_cast<double>(bytes) * static_cast<double>(count);
        smallest = std::min(smallest, bytes);
        copies += count;
        for (const uint64_t room : scene.cluster.device_bytes) slots += room / bytes;
    }
    for (uint32_t device = 0; device < scene.cluster.devices(); ++device)
        if (const uint64_t room = scene.cluster.device_bytes[device]; room != 0 && room < smallest)
            log_warning(format(
                "{}: {} has {} for experts, and the smallest takes {}; it holds none", config.place,
                scene.device_names[device], human_bytes(static_cast<double>(room)),
                human_bytes(static_cast<double>(smallest))));
    if (scene.cluster.has_cloud()) return success();
    // If all experts have one size, memory is counted in whole experts.
    const bool counted = asked == 1;
    if (needed_bytes > available_bytes || (counted && slots < copies))
        return wrong(
            format("{}: {} experts need {:.0f} bytes ({}), and the servers have {:.0f} "
                   "({}){}; give them more expert_memory_bytes, or add [cluster.cloud]",
                   config.place, copies, needed_bytes, human_bytes(needed_bytes), available_bytes,
                   human_bytes(available_bytes),
                   counted ? format(", room for {} whole ones", slots) : ""));
    return success();
}

}  // namespace

moorage_cluster cluster_arrays::view() const {
    moorage_cluster view{};
    view.size = sizeof(view);
    view.flags = flags;
    view.servers = servers;
    view.devices = devices();
    view.homes = homes;
    view.models = models;
    view.host_device_server = device_server.data();
    view.host_device_bytes = device_bytes.data();
    view.host_device_load_bytes_per_s = device_load_bytes_per_s.data();
    view.host_device_call_s = device_call_s.data();
    view.host_device_token_s = device_token_s.data();
    view.host_link_bytes_per_s = link_bytes_per_s.data();
    view.host_link_s = link_s.data();
    if (has_cloud()) {
        view.host_cloud_up_bytes_per_s = cloud_up_bytes_per_s.data();
        view.host_cloud_down_bytes_per_s = cloud_down_bytes_per_s.data();
        view.host_cloud_s = cloud_s.data();
        view.host_cloud_call_s = cloud_call_s.data();
    }
    view.host_home_server = home_server.data();
    view.host_home_up_bytes_per_s = home_up_bytes_per_s.data();
    view.host_home_down_bytes_per_s = home_down_bytes_per_s.data();
    view.host_home_call_s = home_call_s.data();
    return view;
}

bool demand_arrays::is_requested(uint32_t model) const {
    for (uint32_t home = 0; home < homes; ++home)
        if (home_model[size_t{home} * models + model] > 0) return true;
    return false;
}

moorage_demand demand_arrays::view() const {
    moorage_demand view{};
    view.size = sizeof(view);
    view.models = models;
    view.homes = homes;
    view.host_model_first = model_first.data();
    view.host_model_layers = model_layers.data();
    view.host_model_experts = model_experts.data();
    view.host_model_top_k = model_top_k.data();
    view.host_model_groups = model_groups.data();
    view.host_expert_bytes = expert_bytes.data();
    view.host_hidden_bytes = hidden_bytes.data();
    view.host_home_tokens_per_s = home_tokens_per_s.data();
    view.host_home_batch = home_batch.data();
    view.host_home_model = home_model.data();
    view.host_frequency = frequency.data();
    view.calls = call_group.size();
    view.host_home_first_call = home_first_call.data();
    view.host_call_group = call_group.data();
    view.host_call_share = call_share.data();
    view.groups = group_first.empty() ? 0 : group_first.size() - 1;
    view.host_group_first = group_first.data();
    view.host_group_experts = group_experts.data();
    view.host_home_holds = home_holds.empty() ? nullptr : home_holds.data();
    view.window_s = window_s;
    view.host_home_single_share = home_single_share.empty() ? nullptr : home_single_share.data();
    return view;
}

double expert_flops(const model_shape &shape) {
    return 2.0 * shape.matrices * shape.hidden * shape.moe_intermediate;
}

status add_models(const cluster_config &config, const std::filesystem::path &base, scene &scene) {
    demand_arrays &demand = scene.demand;
    demand.models = scene.cluster.models = static_cast<uint32_t>(config.models.size());
    uint64_t first = 0;
    for (const cluster_model &model : config.models) {
        result<model_shape> shape = load_shape(model.shape, base);
        if (!shape)
            return wrong(format("{}: [[cluster.models]] {}: {}", model.place, model.name,
                                shape.failure().text));
        if (model.expert_bytes) shape->expert_bytes = *model.expert_bytes;
        if (shape->experts % model.groups != 0)
            return wrong(
                format("{}: [[cluster.models]] {}: {} experts do not divide into {} groups",
                       model.place, model.name, shape->experts, model.groups));
        demand.model_first.push_back(static_cast<uint32_t>(first));
        demand.model_layers.push_back(shape->moe_layers);
        demand.model_experts.push_back(shape->experts);
        demand.model_top_k.push_back(shape->top_k);
        demand.model_groups.push_back(model.groups);
        demand.expert_bytes.push_back(shape->expert_bytes);
        demand.hidden_bytes.push_back((uint64_t{shape->hidden} * model.value_bits + 7) / 8);
        first += uint64_t{shape->moe_layers} * shape->experts;
        if (first > experts_max)
            return wrong(format("{}: more than {} experts with model {}; use fewer models",
                                model.place, experts_max, model.name));
        scene.model_names.push_back(model.name);
        scene.shapes.push_back(std::move(*shape));
    }
    demand.model_first.push_back(static_cast<uint32_t>(first));
    return success();
}

result<scene> make_scene(const cluster_config &config, const std::filesystem::path &base) {
    if (config.servers.size() > zone_servers_max)
        return wrong(
            format("{}: {} servers, and {} are the most of one plan; moorage place makes "
                   "one in zones, everything else needs fewer",
                   config.place, config.servers.size(), zone_servers_max));
    scene built;
    if (config.serial_calls) built.cluster.flags |= MOORAGE_CALLS_SERIAL;
    if (config.returns_each) built.cluster.flags |= MOORAGE_RETURNS_EACH;
    if (config.shared_interface) built.cluster.flags |= MOORAGE_LINKS_SHARED;
    built.demand.window_s = config.window_s;
    if (const status added = add_models(config, base, built); !added) return added.failure();
    if (const status added = add_devices(config, base, built); !added) return added.failure();
    if (const status added = add_links(config, built); !added) return added.failure();
    if (const status added = add_homes(config, built); !added) return added.failure();
    if (const status added = add_demand(config, built); !added) return added.failure();
    if (const status enough = check_memory(config, built); !enough) return enough.failure();
    return built;
}

}  // namespace moorage::core

// node_setup.cpp - opens the model, makes the plan, finds the server.
#include "tools/node/node_setup.h"

#include <algorithm>
#include <random>

#include "core/base/text.h"
#include "tools/node/fingerprint.h"
#include "tools/placement/placement_stage.h"
#include "tools/placement/scene.h"

namespace moorage::core {

namespace {

status check_cluster(const run_config &config) {
    if (!config.cluster)
        return error{format("{}: no [cluster], so there are no nodes; docs/cluster.md shows one",
                            config.file.string()),
                     true};
    const cluster_config &cluster = *config.cluster;
    if (cluster.models.size() != 1)
        return error{format("{}: {} models; nodes serve one, so leave one in [[cluster.models]]",
                            cluster.place, cluster.models.size()),
                     true};
    if (cluster.cloud)
        return error{format("{}: [cluster.cloud] is for emulated runs; to nodes a cloud is one of "
                            "[[cluster.servers]], with an address and memory for every expert",
                            cluster.place),
                     true};
    return success();
}

status check_shape(const cluster_model &named, const model_shape &shape, const model &model) {
    const model_config &config = model.config();
    const auto layers = static_cast<uint32_t>(config.moe_layers().size());
    if (shape.moe_layers == layers && shape.experts == config.experts &&
        shape.top_k == config.top_k)
        return success();
    return error{format("{}: {} has {} layers of {} experts, top-{}, and shape {} says {} of {}, "
                        "top-{}; name its own shape in [[cluster.models]]",
                        named.place, model.directory().string(), layers, config.experts,
                        config.top_k, named.shape, shape.moe_layers, shape.experts, shape.top_k),
                 true};
}

std::vector<std::string> addresses_of(const std::string &list) {
    std::vector<std::string> addresses;
    for (std::string address : split(list, ',')) {
        std::erase(address, ' ');
        if (!address.empty()) addresses.push_back(std::move(address));
    }
    return addresses;
}

status find_server(const cluster_config &cluster, const std::string &name, node_setup &setup) {
    std::vector<std::string> known;
    for (const cluster_server &server : cluster.servers) known.push_back(server.name);
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
        const std::string hint = did_you_mean(name, known);
        return error{format("{}: there is no server {}{}", cluster.place, name,
                            hint.empty() ? format("; there are {}", fmt::join(known, ", ")) : hint),
                     true};
    }
    setup.server = static_cast<uint32_t>(found - known.begin());
    setup.status_address = cluster.servers[setup.server].status;
    const auto &addresses = setup.plan.servers[setup.server].addresses;
    if (!addresses.empty()) setup.listen_address = addresses.front();
    return success();
}

}  // namespace

result<node_setup> set_up_node(const run_config &config, const std::string &server,
                               run_resources &shared) {
    if (const status sound = check_cluster(config); !sound) return sound.failure();
    const cluster_config &cluster = *config.cluster;
    const cluster_model &named = cluster.models.front();
    node_setup setup;
    setup.directory = config.model.empty() ? named.weights : config.model;
    if (setup.directory.empty())
        return error{format("{}: [[cluster.models]] {} does not say where its weights are; give "
                            "weights = \"DIR\"",
                            named.place, named.name),
                     true};
    for (const cluster_server &entry : cluster.servers)
        setup.plan.servers.push_back({entry.name, addresses_of(entry.address)});
    if (!server.empty())
        if (const status found = find_server(cluster, server, setup); !found)
            return found.failure();
    const auto opened = shared.open_model(setup.directory);
    if (!opened) return opened.failure();
    setup.opened = *opened;
    auto scene = make_scene(cluster, config.file.parent_path());
    if (!scene) return scene.failure();
    const model &model = *setup.opened->loaded_model;
    if (const status fits = check_shape(named, scene->shapes.front(), model); !fits)
        return fits.failure();
    auto first = make_first_plan(config, shared.policies(), *scene);
    if (!first) return first.failure();
    node_plan &plan = setup.plan;
    plan.sizes = {scene->shapes.front().moe_layers, model.config().experts, model.config().hidden,
                  call_rows_max};
    plan.top_k = model.config().top_k;
    plan.model_name = named.name;
    plan.model = fingerprint_of(model, config.arithmetic_mode);
    plan.cluster = cluster_fingerprint(plan.servers);
    std::vector<std::vector<uint32_t>> holders(plan.pages());
    for (const moorage_copy &copy : first->placement.copies)
        holders[copy.expert].push_back(scene->cluster.device_server[copy.device]);
    set_holders(plan, holders);
    if (setup.server != no_server) setup.prices = planned_prices(*scene, setup.server);
    for (uint32_t device = 0; device < scene->cluster.devices(); ++device)
        if (scene->cluster.device_server[device] == setup.server)
            setup.slots += static_cast<uint32_t>(
                std::min<uint64_t>(scene->cluster.device_bytes[device] /
                                       std::max<uint64_t>(scene->demand.expert_bytes.front(), 1),
                                   plan.pages()));
    setup.cluster_scene = std::move(*scene);
    setup.heartbeat_plan = plan;
    setup.heartbeat_plan.sizes.rows_max = 1;
    for (size_t i = 0; i < cluster.servers.size(); ++i)
        setup.heartbeat_plan.servers[i].addresses = addresses_of(cluster.servers[i].heartbeats);
    return setup;
}

result<uint32_t> server_named(const node_plan &plan, const std::string &name) {
    std::vector<std::string> names;
    for (const node_server &server : plan.servers) names.push_back(server.name);
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
        return error{format("there is no server {}{}", name, did_you_mean(name, names)), true};
    return static_cast<uint32_t>(found - names.begin());
}

uint64_t draw_incarnation() {
    std::random_device chance;
    return uint64_t{chance()} << 32 | chance();
}

}  // namespace moorage::core

// node_setup.cpp - opens the model, makes the plan, finds the server.
#include "core/node/node_setup.h"

#include <algorithm>
#include <random>

#include "core/base/text.h"
#include "core/node/fingerprint.h"
#include "core/placement/placement_stage.h"
#include "core/placement/scene.h"

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

status check_shape(const cluster_model &named, const model_shape &shape, const model &of) {
    const model_config &config = of.config();
    const auto layers = static_cast<uint32_t>(config.moe_layers().size());
    if (shape.moe_layers == layers && shape.experts == config.experts &&
        shape.top_k == config.top_k)
        return success();
    return error{format("{}: {} has {} layers of {} experts, top-{}, and shape {} says {} of {}, "
                        "top-{}; name its own shape in [[cluster.models]]",
                        named.place, of.directory().string(), layers, config.experts, config.top_k,
                        named.shape, shape.moe_layers, shape.experts, shape.top_k),
                 true};
}

std::vector<std::string> addresses_of(const std::string &list) {
    std::vector<std::string> all;
    for (std::string one : split(list, ',')) {
        std::erase(one, ' ');
        if (!one.empty()) all.push_back(std::move(one));
    }
    return all;
}

status find_server(const cluster_config &cluster, const std::string &name, node_setup &made) {
    std::vector<std::string> known;
    for (const cluster_server &one : cluster.servers) known.push_back(one.name);
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
        const std::string hint = did_you_mean(name, known);
        return error{format("{}: there is no server {}{}", cluster.place, name,
                            hint.empty() ? format("; there are {}", fmt::join(known, ", ")) : hint),
                     true};
    }
    made.server = static_cast<uint32_t>(found - known.begin());
    made.status = cluster.servers[made.server].status;
    const auto &addresses = made.plan.servers[made.server].addresses;
    if (!addresses.empty()) made.listens = addresses.front();
    return success();
}

}  // namespace

result<node_setup> set_up_node(const run_config &config, const std::string &server,
                               run_resources &shared) {
    if (const status sound = check_cluster(config); !sound) return sound.failure();
    const cluster_config &cluster = *config.cluster;
    const cluster_model &named = cluster.models.front();
    node_setup made;
    made.directory = config.model.empty() ? named.weights : config.model;
    if (made.directory.empty())
        return error{format("{}: [[cluster.models]] {} does not say where its weights are; give "
                            "weights = \"DIR\"",
                            named.place, named.name),
                     true};
    for (const cluster_server &one : cluster.servers)
        made.plan.servers.push_back({one.name, addresses_of(one.address)});
    if (!server.empty())
        if (const status found = find_server(cluster, server, made); !found) return found.failure();
    const auto opened = shared.open_model(made.directory);
    if (!opened) return opened.failure();
    made.opened = *opened;
    auto all = make_scene(cluster, config.file.parent_path());
    if (!all) return all.failure();
    const model &of = *made.opened->of;
    if (const status fits = check_shape(named, all->shapes.front(), of); !fits)
        return fits.failure();
    auto first = make_first_plan(config, shared.policies(), *all);
    if (!first) return first.failure();
    node_plan &plan = made.plan;
    plan.sizes = {all->shapes.front().moe_layers, of.config().experts, of.config().hidden,
                  call_rows_max};
    plan.top_k = of.config().top_k;
    plan.model_name = named.name;
    plan.model = fingerprint_of(of, config.numbers);
    plan.cluster = cluster_fingerprint(plan.servers);
    std::vector<std::vector<uint32_t>> holders(plan.pages());
    for (const moorage_copy &copy : first->made.copies)
        holders[copy.expert].push_back(all->cluster.device_server[copy.device]);
    set_holders(plan, holders);
    if (made.server != no_server) made.prices = planned_prices(*all, made.server);
    for (uint32_t device = 0; device < all->cluster.devices(); ++device)
        if (all->cluster.device_server[device] == made.server)
            made.slots += static_cast<uint32_t>(
                std::min<uint64_t>(all->cluster.device_bytes[device] /
                                       std::max<uint64_t>(all->demand.expert_bytes.front(), 1),
                                   plan.pages()));
    made.all = std::move(*all);
    made.beats = plan;
    made.beats.sizes.rows_max = 1;
    for (size_t i = 0; i < cluster.servers.size(); ++i)
        made.beats.servers[i].addresses = addresses_of(cluster.servers[i].heartbeats);
    return made;
}

result<uint32_t> server_named(const node_plan &of, const std::string &name) {
    std::vector<std::string> names;
    for (const node_server &one : of.servers) names.push_back(one.name);
    const auto at = std::ranges::find(names, name);
    if (at == names.end())
        return error{format("there is no server {}{}", name, did_you_mean(name, names)), true};
    return static_cast<uint32_t>(at - names.begin());
}

uint64_t draw_incarnation() {
    std::random_device chance;
    return uint64_t{chance()} << 32 | chance();
}

}  // namespace moorage::core

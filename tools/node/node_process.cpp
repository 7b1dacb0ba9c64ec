// node_process.cpp - starts the parts of a node, one after the other.
#include "tools/node/node_process.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "tools/node/wire_plugin.h"
#include "tools/registry/open_registry.h"

namespace moorage::core {

result<std::unique_ptr<node_process>> node_process::start(const run_config &config,
                                                          const registry &policies,
                                                          const node_setup &setup,
                                                          bool must_listen) {
    std::unique_ptr<node_process> process(new node_process());
    auto opened_wire = open_wire(config, policies, setup.plan, wire_calls::noted);
    if (!opened_wire) return opened_wire.failure();
    process->wire_ = std::move(*opened_wire);
    process->pool_ = std::make_unique<thread_pool>(config.threads, config.arithmetic_mode);
    const bool changes = !config.registry.place.empty();
    process->node_ = std::make_unique<peer_node>(node_parts{
        .message_wire = process->wire_.get(),
        .plan = &setup.plan,
        .identity = {setup.server, draw_incarnation(), "moorage"},
        .loaded_model = setup.opened->loaded_model.get(),
        .pool = process->pool_.get(),
        .board = changes ? &process->board_ : nullptr,
        .expert_bytes =
            changes ? setup.slots * setup.opened->loaded_model->sizes().expert_bytes : 0,
        .moving = {.bytes_per_s = static_cast<uint64_t>(config.cluster->migration_bytes_per_s),
                   .delay_max = config.cluster->migration_delay_max}});
    if (const core::status begun = process->watch_others(config, policies, setup); !begun)
        return begun.failure();
    process->status_.show_threads(process->pool_->threads());
    process->status_.show_spans(
        [self = process.get(), plan = &setup.plan] { return self->spans_of(*plan); });
    const auto start_part = [&](const std::string &address, auto &&part) -> core::status {
        if (address.empty()) return success();
        const core::status done = part(address);
        if (done || must_listen) return done;
        process->trouble_ = done.failure().text;
        return success();
    };
    const core::status listening =
        start_part(setup.listen_address, [&](const std::string &address) -> core::status {
            auto bound = process->node_->listen(address);
            if (!bound) return bound.failure();
            process->address_ = std::move(*bound);
            return success();
        });
    if (!listening) return listening.failure();
    if (const core::status joined = process->join(config, policies, setup, must_listen); !joined)
        return joined.failure();
    // Before the loop runs, /status shows the plan that the registry had.
    process->status_.note(*process->node_, nullptr, true);
    const core::status answering =
        start_part(setup.status_address, [&](const std::string &address) -> core::status {
            auto server =
                http_server::listen(address, [status = &process->status_](std::string_view path) {
                    return status->answer(path);
                });
            if (!server) return server.failure();
            process->http_ = std::move(*server);
            return success();
        });
    if (!answering) return answering.failure();
    return process;
}

// A node that can be called takes part. A home beside the node of its server only follows the plan.
status node_process::join(const run_config &config, const registry &policies,
                          const node_setup &setup, bool must_listen) {
    if (config.registry.place.empty()) return success();
    const bool member = !address_.empty();
    auto registry = open_registry(config.registry, must_listen);
    if (!registry) return registry.failure();
    if (!member) node_->set_beside_its_node();
    registrar_ = std::make_unique<registrar>(
        registrar::parts{.registry = std::move(*registry),
                         .plan = setup.plan,
                         .name = member ? setup.plan.servers[setup.server].name : "",
                         .board = &board_,
                         .desk = &desk_,
                         .wake = [message_wire = wire_.get()] { message_wire->wake(); }});
    std::unique_ptr<placement_stage> policy;
    if (!config.placement.plugin.empty()) {
        auto opened =
            placement_stage::open(config.placement, policies, setup.cluster_scene, config.seed);
        if (!opened) return opened.failure();
        policy = std::move(*opened);
    }
    leader_ = std::make_unique<plan_leader>(setup.cluster_scene, std::move(policy), *config.cluster,
                                            setup.plan, desk_, board_, watch_.get());
    status_.show_registry([registrar = registrar_.get()] { return registrar->view(); });
    status_.show_task("registry",
                      [registrar = registrar_.get()] { return registrar->turned_ns(); });
    status_.show_task("plan", [leader = leader_.get()] { return leader->turned_ns(); });
    registrar_->begin();
    registrar_->wait_for_first(1'000'000'000);
    node_->follow();
    leader_->begin();
    return success();
}

// On the thread that answers.
node_spans node_process::spans_of(const node_plan &plan) {
    node_spans spans;
    const uint32_t own_server = node_->identity().server;
    for (const node_server &server : plan.servers) spans.servers.push_back(server.name);
    spans.server = own_server < plan.servers.size() ? plan.servers[own_server].name : "";
    spans.incarnation = node_->identity().incarnation;
    for (uint32_t server = 0; watch_ && server < plan.servers.size(); ++server)
        if (const clock_sample sample = watch_->clock_of(server); sample.error_ns != 0)
            spans.offsets.push_back({plan.servers[server].name, sample});
    spans.spans = node_->spans().latest();
    spans.now_ns = steady_ns();
    return spans;
}

// Where any server has an address for heartbeats. One that is taken is the node's of this server.
status node_process::watch_others(const run_config &config, const registry &policies,
                                  const node_setup &setup) {
    const auto &servers = setup.heartbeat_plan.servers;
    if (std::ranges::all_of(servers, [](const auto &server) { return server.addresses.empty(); }))
        return success();
    auto opened_wire = open_wire(config, policies, setup.heartbeat_plan, wire_calls::beside);
    if (!opened_wire) return opened_wire.failure();
    watch_ =
        std::make_unique<watch>(std::move(*opened_wire), setup.heartbeat_plan, node_->identity(),
                                [message_wire = wire_.get()] { message_wire->wake(); });
    if (const auto &addresses = servers[setup.server].addresses; !addresses.empty())
        if (const auto bound = watch_->listen(addresses.front()); !bound)
            log_info(format("answers no heartbeats: {}", bound.failure().text));
    status_.show_task("heartbeats",
                      [heartbeats = watch_.get()] { return heartbeats->turned_ns(); });
    watch_->begin();
    node_->set_heartbeats(watch_.get());
    return success();
}

}  // namespace moorage::core

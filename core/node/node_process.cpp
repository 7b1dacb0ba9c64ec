// node_process.cpp - starts the parts of a node, one after the other.
#include "core/node/node_process.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/node/wire_plugin.h"
#include "core/registry/open_registry.h"

namespace moorage::core {

result<std::unique_ptr<node_process>> node_process::start(const run_config &config,
                                                          const registry &policies,
                                                          const node_setup &setup,
                                                          bool must_listen) {
    std::unique_ptr<node_process> made(new node_process());
    auto through = open_wire(config, policies, setup.plan, wire_calls::noted);
    if (!through) return through.failure();
    made->wire_ = std::move(*through);
    made->pool_ = std::make_unique<thread_pool>(config.threads, config.numbers);
    const bool changes = !config.registry.place.empty();
    made->node_ = std::make_unique<peer_node>(node_parts{
        .over = made->wire_.get(),
        .plan = &setup.plan,
        .own = {setup.server, draw_incarnation(), "moorage"},
        .of = setup.opened->of.get(),
        .pool = made->pool_.get(),
        .board = changes ? &made->board_ : nullptr,
        .expert_bytes = changes ? setup.slots * setup.opened->of->sizes().expert_bytes : 0,
        .moving = {.bytes_per_s = static_cast<uint64_t>(config.cluster->migration_bytes_per_s),
                   .delay_max = config.cluster->migration_delay_max}});
    if (const core::status begun = made->watch_others(config, policies, setup); !begun)
        return begun.failure();
    made->status_.show_threads(made->pool_->threads());
    made->status_.show_spans([of = made.get(), plan = &setup.plan] { return of->spans_of(*plan); });
    const auto start_part = [&](const std::string &at, auto &&part) -> core::status {
        if (at.empty()) return success();
        const core::status done = part(at);
        if (done || must_listen) return done;
        made->trouble_ = done.failure().text;
        return success();
    };
    const core::status listening =
        start_part(setup.listens, [&](const std::string &at) -> core::status {
            auto bound = made->node_->listen(at);
            if (!bound) return bound.failure();
            made->address_ = std::move(*bound);
            return success();
        });
    if (!listening) return listening.failure();
    if (const core::status joined = made->join(config, policies, setup, must_listen); !joined)
        return joined.failure();
    // Before the loop runs, /status shows the plan that the registry had.
    made->status_.note(*made->node_, nullptr, true);
    const core::status answering =
        start_part(setup.status, [&](const std::string &at) -> core::status {
            auto server = http_server::listen(at, [status = &made->status_](std::string_view path) {
                return status->answer(path);
            });
            if (!server) return server.failure();
            made->http_ = std::move(*server);
            return success();
        });
    if (!answering) return answering.failure();
    return made;
}

// A node that can be called takes part. A home beside the node of its server only follows the plan.
status node_process::join(const run_config &config, const registry &policies,
                          const node_setup &setup, bool must_listen) {
    if (config.registry.place.empty()) return success();
    const bool member = !address_.empty();
    auto at = open_registry(config.registry, must_listen);
    if (!at) return at.failure();
    if (!member) node_->is_beside_its_node();
    registrar_ = std::make_unique<registrar>(
        registrar::parts{.at = std::move(*at),
                         .plan = setup.plan,
                         .name = member ? setup.plan.servers[setup.server].name : "",
                         .board = &board_,
                         .desk = &desk_,
                         .wake = [to = wire_.get()] { to->wake(); }});
    std::unique_ptr<placement_stage> policy;
    if (!config.placement.plugin.empty()) {
        auto opened = placement_stage::open(config.placement, policies, setup.all, config.seed);
        if (!opened) return opened.failure();
        policy = std::move(*opened);
    }
    leader_ = std::make_unique<plan_leader>(setup.all, std::move(policy), *config.cluster,
                                            setup.plan, desk_, board_, watch_.get());
    status_.show_registry([from = registrar_.get()] { return from->view(); });
    status_.show_task("registry", [from = registrar_.get()] { return from->turned_ns(); });
    status_.show_task("plan", [from = leader_.get()] { return from->turned_ns(); });
    registrar_->begin();
    registrar_->wait_for_first(1'000'000'000);
    node_->follow();
    leader_->begin();
    return success();
}

// On the thread that answers.
node_spans node_process::spans_of(const node_plan &plan) {
    node_spans made;
    const uint32_t own = node_->own().server;
    for (const node_server &one : plan.servers) made.servers.push_back(one.name);
    made.server = own < plan.servers.size() ? plan.servers[own].name : "";
    made.incarnation = node_->own().incarnation;
    for (uint32_t server = 0; watch_ && server < plan.servers.size(); ++server)
        if (const clock_sample is = watch_->clock_of(server); is.error_ns != 0)
            made.offsets.push_back({plan.servers[server].name, is});
    made.spans = node_->spans().latest();
    made.now_ns = steady_ns();
    return made;
}

// Where any server has an address for heartbeats. One that is taken is the node's of this server.
status node_process::watch_others(const run_config &config, const registry &policies,
                                  const node_setup &setup) {
    const auto &servers = setup.beats.servers;
    if (std::ranges::all_of(servers, [](const auto &one) { return one.addresses.empty(); }))
        return success();
    auto over = open_wire(config, policies, setup.beats, wire_calls::beside);
    if (!over) return over.failure();
    watch_ = std::make_unique<watch>(std::move(*over), setup.beats, node_->own(),
                                     [to = wire_.get()] { to->wake(); });
    if (const auto &own = servers[setup.server].addresses; !own.empty())
        if (const auto bound = watch_->listen(own.front()); !bound)
            log_info(format("answers no heartbeats: {}", bound.failure().text));
    status_.show_task("heartbeats", [from = watch_.get()] { return from->turned_ns(); });
    watch_->begin();
    node_->watch_with(watch_.get());
    return success();
}

}  // namespace moorage::core

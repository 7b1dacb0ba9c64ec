// node_process.cpp - starts the parts of a node, one after the other.
#include "core/node/node_process.h"

#include <random>

#include "core/base/text.h"
#include "core/node/wire_plugin.h"

namespace moorage::core {

result<std::unique_ptr<node_process>> node_process::start(const run_config &config,
                                                          const registry &policies,
                                                          const node_setup &setup,
                                                          bool must_listen) {
    std::unique_ptr<node_process> made(new node_process());
    auto through = open_wire(config, policies, setup.plan);
    if (!through) return through.failure();
    made->wire_ = std::move(*through);
    made->pool_ = std::make_unique<thread_pool>(config.threads);
    std::random_device chance;
    const uint64_t incarnation = uint64_t{chance()} << 32 | chance();
    made->node_ =
        std::make_unique<peer_node>(node_parts{.over = made->wire_.get(),
                                               .plan = &setup.plan,
                                               .own = {setup.server, incarnation, "moorage"},
                                               .of = setup.opened->of.get(),
                                               .pool = made->pool_.get()});
    made->status_.note(*made->node_, nullptr, true);
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

}  // namespace moorage::core

// node_process.h - the parts that make a process a node: threads, wire, node, and the page with its
// state.
#pragma once

#include <memory>
#include <string>

#include "core/config/run_config.h"
#include "core/execute/thread_pool.h"
#include "core/host/registry.h"
#include "tools/node/http.h"
#include "tools/node/node_setup.h"
#include "tools/node/node_status.h"
#include "tools/node/peer_node.h"
#include "tools/node/plan_leader.h"
#include "tools/node/registrar.h"
#include "tools/node/wire.h"

namespace moorage::core {

class node_process {
public:
    // `setup` is borrowed. Listens where the setup says. must_listen: an address that is taken is
    // an error; otherwise it is only reported, and the process is a home beside the node of its
    // server.
    static result<std::unique_ptr<node_process>> start(const run_config &config,
                                                       const registry &policies,
                                                       const node_setup &setup, bool must_listen);

    peer_node &node() { return *node_; }
    thread_pool &pool() { return *pool_; }
    node_status &status() { return status_; }
    const std::string &address() const { return address_; }  // empty: nobody can call
    std::string status_address() const { return http_ ? http_->address() : std::string(); }
    // Why nobody can call. Empty: they can, or it was not wanted.
    const std::string &trouble() const { return trouble_; }

private:
    node_process() = default;
    core::status watch_others(const run_config &config, const registry &policies,
                              const node_setup &setup);
    node_spans spans_of(const node_plan &plan);
    core::status join(const run_config &config, const registry &policies, const node_setup &setup,
                      bool must_listen);
    // In the order of construction.
    std::unique_ptr<thread_pool> pool_;
    std::unique_ptr<wire> wire_;
    plan_board board_;
    std::unique_ptr<peer_node> node_;
    std::unique_ptr<watch> watch_;
    leader_desk desk_;
    std::unique_ptr<registrar> registrar_;  // null: the file is the registry
    std::unique_ptr<plan_leader> leader_;
    node_status status_;
    std::unique_ptr<http_server> http_;
    std::string address_, trouble_;
};

}  // namespace moorage::core

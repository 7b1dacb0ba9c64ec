// node_setup.h - one server of a cluster file as a node: model, plan, addresses.
#pragma once

#include <string>

#include "core/config/run_config.h"
#include "tools/node/node_plan.h"
#include "tools/node/planned_prices.h"
#include "core/pipeline/run.h"
#include "tools/placement/scene.h"

namespace moorage::core {

struct node_setup {
    const opened_model *opened = nullptr;
    std::filesystem::path directory;  // directory from which it was opened
    node_plan plan;
    uint32_t server = no_server;        // this node's server in the plan
    std::string listen_address;         // where; empty: nowhere
    std::string status_address;         // address of its status page; empty: nowhere
    uint32_t slots = 0;                 // experts that its devices have room for
    std::vector<planned_price> prices;  // prices that a server uses for the others, from the file
    scene cluster_scene;                // input from which plans are made
    node_plan heartbeat_plan;           // the plan with the addresses of heartbeats
};

// Each node reads the same file and comes to the same plan, that of epoch 1. Nodes compare it when
// they connect. A registry may have a later one. The directory is config.model, otherwise that of
// [[cluster.models]] weights. `server` empty: for a caller that is no server, but asks them.
// Requires: shared.scan() succeeded.
result<node_setup> set_up_node(const run_config &config, const std::string &server,
                               run_resources &shared);

// The plan's server of that name, or an error with the nearest one.
result<uint32_t> server_named(const node_plan &plan, const std::string &name);
// The incarnation of a process that begins. No two processes have the same.
uint64_t draw_incarnation();

// Rows of the longest call. Memory is taken only for the rows that calls have.
constexpr uint32_t call_rows_max = 1024;

}  // namespace moorage::core

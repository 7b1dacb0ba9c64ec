// node_setup.h - one server of a cluster file as a node: model, plan, addresses.
#pragma once

#include <string>

#include "core/config/run_config.h"
#include "core/node/node_plan.h"
#include "core/node/planned_prices.h"
#include "core/pipeline/run.h"
#include "core/placement/scene.h"

namespace moorage::core {

struct node_setup {
    const opened_model *opened = nullptr;
    std::filesystem::path directory;  // that it was opened from
    node_plan plan;
    uint32_t server = no_server;        // which of the plan's this one is
    std::string listens;                // where; empty: nowhere
    std::string status;                 // where it says how it is; empty: nowhere
    uint32_t slots = 0;                 // experts that its devices have room for
    std::vector<planned_price> prices;  // of a server: of the others, by the file
    scene all;                          // what plans are made of
    node_plan beats;                    // plan, with the addresses of heartbeats
};

// Each reads the same file and comes to the same plan, that of epoch 1, which they compare when
// they connect; a registry may have a later one. The directory is config.model, else what
// [[cluster.models]] weights says. `server` empty: of somebody who is none, but asks them.
// Requires: shared.scan() went well.
result<node_setup> set_up_node(const run_config &config, const std::string &server,
                               run_resources &shared);

// The plan's server of that name, or an error with the nearest one.
result<uint32_t> server_named(const node_plan &of, const std::string &name);
// The incarnation of a process that begins. No two processes have the same.
uint64_t draw_incarnation();

// Rows of the longest call; of memory only what calls have is taken.
constexpr uint32_t call_rows_max = 1024;

}  // namespace moorage::core

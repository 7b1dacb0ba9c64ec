// home.h - serves requests that enter at a node: the pipeline of any run, over an executor whose
// experts lie partly elsewhere.
//
// The experts that the plan gives this node are resident, read in place from the model directory.
// For the others the dispatch policy decides which holder is called, at measured prices (caller.h).
// Text is equal to that of one process on cpu, to the bit, whatever the plan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/config/run_config.h"
#include "tools/node/caller.h"
#include "tools/node/peer_node.h"
#include "core/pipeline/run.h"
#include "core/report/report.h"

namespace moorage::core {

struct home_options {
    bool own_disk = true;
    uint32_t slots = 0;  // experts that it may hold as the plan changes; fewer than now: no more
                         // than now
    uint64_t connect_ns = 2'000'000'000;  // how long nodes are waited for at first
    std::function<void(uint64_t request, int32_t id)> on_token = {};
    std::function<bool()> stop = {};                       // asked after every pass
    std::function<void(const caller &)> after_pass = {};   // sees the caller at work
    const std::vector<model_request> *requests = nullptr;  // replaces prompts and text
    // Takes requests that come over the wire, in place of known ones, until `stop`. Then no more
    // are taken, and those under way end within peer_node::drain_ns. Borrowed.
    request_desk *desk = nullptr;
    bool hedge = false;                      // caller::enable_hedging
    std::vector<planned_price> prices = {};  // [servers] replaces measured prices; empty: measured
    uint32_t context_max = 0;                // with a desk: positions of the longest request
};

// The work of a home, beside its report.
struct home_result {
    run_report report;
    caller_figures calls;
    uint64_t layer_steps = 0;
};

// A home that serves until `stop`. It takes the requests of others, and computes for others
// meanwhile. If a run breaks off (because nobody computes an expert), the requests under way end
// with its error text. Later requests find a new run. Returns an error only if no run can begin.
// Requires: as below, and options.stop.
status serve_home(const run_config &config, run_resources &shared, peer_node &node,
                  thread_pool &pool, home_options options);

// Requires: config.model is open in `shared` as `node` has it, config.executor is cpu. `pool` is
// the one with which `node` computes.
result<home_result> run_home(const run_config &config, run_resources &shared, peer_node &node,
                             thread_pool &pool, const home_options &options);

}  // namespace moorage::core

// load_report.h - the measurements of a load as the report of a run, to compare with the same
// cluster emulated.
//
// Times begin when a request was meant to be sent. Nodes count calls, hidden states on links, and
// where experts were computed. These figures are the difference between two reads of /status.
// Without /status they are 0 and a warning says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "tools/node/load_run.h"
#include "core/report/report.h"

namespace moorage::core {

// The counters in one server's /status, which may be anything.
struct node_counts {
    uint64_t incarnation = 0;
    uint64_t calls = 0, activations = 0, elsewhere = 0, served = 0;
    uint64_t called_us = 0;  // total time of its calls
    struct link_bytes {
        uint64_t outward_bytes = 0, return_bytes = 0;  // bytes of hidden states
        bool operator==(const link_bytes &) const = default;
    };
    std::vector<link_bytes> servers;
};
// nullopt: the status has no such counters. `servers`: number of servers in the cluster.
std::optional<node_counts> counts_of(const json &status, size_t servers);

struct load_seen {
    // [servers] before and after the load.
    std::vector<std::optional<node_counts>> start, end;
};

// How many requests ended in each way.
using load_ends = std::array<uint64_t, 6>;
load_ends ends_of(const std::vector<load_outcome> &outcomes);

// Only answered requests count for times and tokens. The ends of the others are in the warnings, by
// home and reason, and in config "load".
run_report report_of(const node_plan &plan, const std::vector<load_request> &requests,
                     const std::vector<load_outcome> &outcomes, const load_seen &seen);

// "40 requests: 37 answered, 1 refused, 2 lost; sent 0.1 ms late (p99 0.9)"
std::string summary_of(const run_report &report);

}  // namespace moorage::core

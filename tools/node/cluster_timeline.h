// cluster_timeline.h - the spans of several nodes on one clock. They follow a request from its home
// to the nodes that computed for it.
//
//   auto node = read_node_spans(json_of_spans);          // of /spans, for each node
//   node->asked_ns = ..., node->answered_ns = ...;       // by the asker's clock
//   draw_cluster(output, nodes, {.home = "one", .request = 7});
//
// The clocks of machines do not agree. Each node says how far the clocks of others are from its own
// (clock_offset.h), and what time it was when it was asked. The offsets with the least error lead
// from the first node to every other. A node may say anything, so its answer is checked and
// bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "tools/node/clock_offset.h"
#include "tools/node/span_log.h"
#include "core/report/timeline.h"

namespace moorage::core {

struct node_spans {
    struct offset {
        std::string server;
        clock_sample sample;
    };
    std::string server;
    uint64_t incarnation = 0;
    uint64_t now_ns = 0;               // when it answered
    std::vector<std::string> servers;  // by their numbers in spans
    std::vector<offset> offsets;
    std::vector<node_span> spans;
    uint64_t asked_ns = 0, answered_ns = 0;  // by the asker's clock; 0: not said
};

// The answer of /spans.
json to_json(const node_spans &node);
result<node_spans> read_node_spans(const json &object);

// The offset of each node's clock against the first one's. error_ns is 0 for the first node itself,
// and for nodes to which no offset leads.
std::vector<clock_sample> common_clock(std::span<const node_spans> nodes);

struct cluster_timeline_choice {
    std::string home;      // home of the request; empty: everything
    uint64_t request = 0;  // 0: all requests of that home
};
// Returns the number of spans drawn.
uint64_t draw_cluster(timeline &output, std::span<const node_spans> nodes,
                      const cluster_timeline_choice &choice = {});

}  // namespace moorage::core

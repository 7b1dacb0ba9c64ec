// node_status.h - the state of a node, for HTTP clients. The node's loop makes a copy now and then,
// so the thread that answers shares nothing with the thread that computes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "tools/node/caller.h"
#include "tools/node/cluster_timeline.h"
#include "tools/node/http.h"
#include "tools/node/peer_node.h"
#include "tools/node/registrar.h"

namespace moorage::core {

struct peer_status {
    // stands: "self", "ready", "paused", "dead", "refused", "away"
    std::string name, address, stands;
    std::string trouble;  // why it is away
    uint64_t calls = 0, expected_us = 0, deadline_us = 0;
    std::array<uint64_t, call_buckets> histogram{};  // of the times of its calls
    uint64_t called_us = 0;                          // their sum
    uint64_t beat_us = 0;                            // round trip of a heartbeat; 0: none came
    bool calls_us = false;                           // it is connected to this node
    call_totals called;                              // work that it computed for this node
};

struct node_snapshot {
    std::string name, model, software;
    uint64_t incarnation = 0, epoch = 0, plan = 0;
    uint64_t since_ns = 0, taken_ns = 0;  // of the steady clock
    uint32_t in_memory = 0;               // experts; `held`: those that the plan gives it
    uint64_t leaving = 0, coming = 0;
    std::vector<std::string> waited_for;  // callers that have to confirm before leaving experts are
                                          // gone
    mover_figures moved;
    uint64_t calls_delayed_ns = 0;  // delay of calls by moving experts that is not paid yet
    uint32_t held = 0, pages = 0, layers = 0, experts = 0;
    bool draining = false, home = false;
    std::string refused;  // the reason, if all others refuse this node; empty: they do not
    uint64_t waiting = 0, under_way = 0;
    std::vector<call_status> open;
    struct task {  // a thread beside the loop
        std::string name;
        uint64_t turned_ns;  // when it last came round
    };
    std::vector<task> tasks;
    link_figures connections;
    holder_figures served;
    caller_figures called;
    std::optional<desk_figures> asked;  // for a node that takes requests
    uint32_t hidden = 0;
    std::vector<std::vector<uint32_t>> plan_layers;  // [servers][layers] experts that the plan
                                                     // gives them
    std::vector<peer_status> peers;                  // [servers]
    std::vector<uint64_t> layer_rows;                // [layers] computed for others
};

class node_status {
public:
    node_status() : since_ns_(steady_ns()) {}
    // Called from the node's loop. `calls` is null if nobody calls. Copies at most four times a
    // second unless `now`.
    void note(peer_node &node, const caller *calls, bool now = false);
    // Sets the source of the registry's part of /status. It is called on the thread that answers.
    // Call this before begin.
    void show_registry(std::function<registry_view()> source) { registry_ = std::move(source); }
    // Sets the source of /spans. As above.
    void show_spans(std::function<node_spans()> source) { spans_ = std::move(source); }
    // Adds a thread of the node, and when it last came round. turned_ns is called on threads that
    // answer and on the node's loop. Call this before begin.
    void show_task(std::string name, std::function<uint64_t()> turned_ns) {
        tasks_.push_back({std::move(name), std::move(turned_ns)});
    }
    // The number of computing threads, for /status. Call this before begin.
    void show_threads(uint32_t count) { threads_ = count; }
    // From any thread.
    node_snapshot latest() const;
    // /metrics, /health, /status and /spans.
    http_answer answer(std::string_view path) const;

private:
    struct task {
        std::string name;
        std::function<uint64_t()> turned_ns;
        bool stuck_reported = false;  // it was reported that it stands still
    };
    void check_tasks(uint64_t now_ns);
    void log_refusal(const std::string &reason);

    const uint64_t since_ns_;
    mutable std::mutex guard_;
    node_snapshot latest_;
    std::function<registry_view()> registry_;
    std::function<node_spans()> spans_;
    std::vector<task> tasks_;
    uint32_t threads_ = 0;
    uint64_t noted_ns_ = 0;
    bool refusal_reported_ = false;
};

// /health: 200 while it serves.
http_answer health(const node_snapshot &snapshot, uint64_t now_ns);
// Prometheus' text format; `now_ns` of the steady clock.
std::string to_metrics(const node_snapshot &snapshot, uint64_t now_ns);
json to_json(const node_snapshot &snapshot, uint64_t now_ns);

}  // namespace moorage::core

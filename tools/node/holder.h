// holder.h - computes experts for others, on behalf of the nodes that call this one.
//
// Calls wait until compute(). It takes as many as fit into a batch and computes them in one loop,
// with the rows of several callers for one expert together. Inputs are read where the wire received
// them. Outputs are written into the reply that is sent. Bounds: at most waiting_rows_max rows
// wait; further callers are told that the node is busy. A batch has rows_max rows, or one call.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/execute/node_compute.h"
#include "core/model/model.h"
#include "tools/node/expert_store.h"
#include "tools/node/links.h"
#include "tools/node/span_log.h"

namespace moorage::core {

struct holder_figures {
    uint64_t calls = 0, rows = 0, experts = 0, batches = 0,
             joined = 0;                              // joined: calls computed beside others
    uint64_t cancelled = 0, failed = 0, dropped = 0;  // dropped: of connections that have ended
    uint64_t queued_ns = 0, computed_ns = 0;
    uint64_t weights_bytes = 0;
};

class holder {
public:
    // All borrowed. One caller of the pool at a time.
    holder(const model &model, thread_pool &pool, const node_plan &plan,
           const expert_store &experts, links &connections, span_log &spans);
    // Whether a waiting call needs the expert.
    bool needs(uint32_t page) const;

    // Handles a call, a cancellation, or a request for weights. Returns whether it keeps the
    // message.
    bool arrived(link &sender, const frame &message, uint64_t wire_message);
    // Drops the calls of a connection that has ended.
    void gone(const link &peer);
    bool pending() const { return !waiting_.empty(); }
    // Computes some of the waiting calls, the oldest first, and answers them. Requires: pending().
    void compute();

    const holder_figures &figures() const { return figures_; }
    uint64_t waiting() const { return waiting_.size(); }
    // [pages] rows that were computed.
    std::span<const uint64_t> activations() const { return activations_; }

private:
    struct received_call {
        uint64_t connection, wire_message, id, arrived_ns;
        uint32_t server;  // the caller, its incarnation, and its request
        uint64_t home, request;
        call_view body;
    };
    void log(const received_call &call, span_end end, uint64_t began_ns, uint64_t ended_ns);
    void log_end(const received_call &call, span_end end) {  // for a call that was not computed
        const uint64_t now_ns = steady_ns();
        log(call, end, now_ns, now_ns);
    }
    bool take_call(link &sender, const frame &message, uint64_t wire_message);
    std::string explain_missing(uint32_t page, uint64_t epoch) const;
    void fail(link &sender, uint64_t id, const refusal_view &refusal);
    void send_weights(link &sender, const frame &message);
    void take_batch();
    void add_items(const received_call &call, std::span<float> outputs);
    void answer(uint64_t began_ns);

    const node_plan &plan_;
    const expert_store &experts_;
    links &links_;
    span_log &spans_;
    const std::unique_ptr<joined_experts> joined_experts_;
    std::deque<received_call> waiting_;
    uint64_t waiting_rows_ = 0;
    std::vector<received_call> batch_;
    std::vector<message_bytes> replies_;  // [batch]
    std::vector<batch_item> items_;
    std::vector<uint64_t> activations_;
    holder_figures figures_;
};

}  // namespace moorage::core

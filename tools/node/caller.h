// caller.h - has experts computed by other nodes, on behalf of this node's own pipeline.
//
// Implements `peers`: a step's calls go to all servers at once, one call each. Implements
// `side_work`: replies complete on the executor. Handles failures in this order:
//   1. A call that is late, refused or lost, or whose reply is not what was asked for, goes to
//      another holder of its experts.
//   2. If no holder is left, the home computes the experts from its own model directory, if it may.
//   3. Otherwise the run ends with an error that names the expert.
// A server that was late is asked again after a pause. The pause doubles each time. A reply that
// nobody waits for any more is recognised by its id and dropped.
//
// The own disk counts as one more server, the last. It is offered for experts that no answering
// node holds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/execute/node_compute.h"
#include "core/execute/operations.h"
#include "core/execute/peers.h"
#include "core/execute/side_work.h"
#include "core/host/lent_memory.h"
#include "tools/node/call_times.h"
#include "tools/node/peer_node.h"
#include "tools/node/planned_prices.h"

namespace moorage::core {

struct caller_figures {
    uint64_t calls = 0, replies = 0, experts = 0, pairs = 0;
    // Calls that went to another holder, by cause.
    uint64_t late = 0, failed = 0, lost = 0, wrong = 0;
    uint64_t dropped = 0;  // replies that nobody waited for
    // Experts requested again; experts from own disk.
    uint64_t retried = 0, from_own_disk = 0;
    uint64_t layers_calling = 0;          // layer steps with a call at least
    uint64_t hedged = 0, hedges_won = 0;  // calls sent twice; the second came first
    uint64_t waited_ns = 0;               // time of waiting for nothing but replies
    uint64_t elsewhere = 0;    // pairs of row and expert that the step sent away, without retries
    uint64_t activations = 0;  // all pairs of the home, computed anywhere
};

// Calls to a server and their replies, retries included.
struct call_totals {
    uint64_t calls = 0, rows = 0, pairs = 0;  // pairs: those that came back
};

// A call that is under way.
struct call_status {
    uint32_t server, layer, pairs;
    uint64_t request, sent_ns;
};

class caller final : public peers, public side_work, public call_answers {
public:
    static constexpr uint64_t pause_ns_min = 100'000'000, pause_ns_max = 10'000'000'000;

    // Borrowed. own_disk: experts that nobody else computes are computed here.
    caller(peer_node &node, node_compute &compute, bool own_disk);
    ~caller() override;

    // Sends a second copy of a call that takes longer than the 99th percentile to another holder
    // that has all of its experts, if there is one. The first reply is used.
    void enable_hedging(bool enabled) { hedging_enabled_ = enabled; }
    // [servers] prices to use in place of measured call times.
    void use_planned_prices(std::vector<planned_price> prices) {
        planned_prices_ = std::move(prices);
    }
    // Waits until every needed server has greeted or could not be reached, or for wait_ns.
    void connect(uint64_t wait_ns);

    uint32_t servers() const override { return count_ + 1; }
    std::span<const uint8_t> distances() const override { return distances_; }
    bool is_serial() const override { return false; }
    bool can_load() const override { return false; }
    void offers(uint32_t page, uint32_t tokens, uint32_t step_tokens,
                std::vector<remote_offer> &offers) override;
    void call(const call_request &request) override;

    bool take(completion &done) override;
    void wait() override;
    std::string failure() const override { return failure_; }

    const caller_figures &figures() const { return figures_; }
    const call_times &times(uint32_t server) const { return peers_[server].times; }
    bool is_paused(uint32_t server) const { return peers_[server].paused_until_ns > steady_ns(); }
    uint64_t calls_under_way() const { return calls_.size(); }
    std::vector<call_status> open_calls() const;  // the first of the calls under way
    const call_totals &called(uint32_t server) const { return peers_[server].called; }
    // All pairs of row and expert of the home so far.
    void count_activations(uint64_t count) { figures_.activations = count; }
    // Calls name their request. `current_request` gives it when they are sent.
    void set_request_numbers(std::function<uint64_t()> current_request) {
        current_request_ = std::move(current_request);
    }

private:
    struct pending_call {  // a call that has been sent
        uint64_t id = 0, sent_ns = 0, due_ns = 0;
        uint64_t hedge_ns = UINT64_MAX;  // when the second copy is sent
        uint64_t twin_id = 0;            // the id of the other copy
        uint32_t server = 0, layer = 0, pairs = 0;
        uint64_t request = 0;              // the request that it belongs to
        std::vector<expert_work> experts;  // rising by page
        std::vector<uint32_t> tried;       // servers that did not answer it
    };
    struct peer_state {
        call_times times;
        call_totals called;
        uint64_t paused_until_ns = 0, pause_ns = pause_ns_min;
    };
    void answered(link &sender, const frame &message) override;
    void gone(uint32_t server) override;

    bool is_usable(uint32_t server, uint64_t now_ns);
    void send(pending_call &&call);
    message_bytes write_call(const pending_call &call, uint64_t wait_us);
    void fail_over(pending_call &&lost);
    void hedge_slow(uint64_t now_ns);
    bool detach_twin(const pending_call &lost);
    void drop_twin(const pending_call &finished);
    uint32_t next_holder(uint32_t page, const pending_call &lost, uint64_t now_ns);
    // Own disk may be used, or the plan has given the page to this server since the pass began.
    bool may_compute_here(uint32_t page) const {
        return own_disk_ || plan_.holds(node_.identity().server, page);
    }
    void queue_own_disk(std::span<const expert_work> experts);
    bool take_outputs(const pending_call &call, std::span<const float> outputs);
    void fail_expert(const pending_call &call, const expert_work &expert);
    void pause(uint32_t server);
    void check_deadlines();
    void log(const pending_call &call, span_end end);
    void finish(const expert_work &expert, uint64_t ns);
    void compute_own_disk();

    peer_node &node_;
    const node_plan &plan_;
    node_compute &compute_;
    const bool own_disk_;
    const uint32_t count_;  // servers of the cluster
    lent_vector<uint8_t> distances_;
    std::vector<peer_state> peers_;
    std::deque<pending_call> calls_;
    std::vector<expert_work> disk_experts_;  // experts to compute from own disk
    uint32_t layer_ = 0;                     // of the step
    bool counted_ = false;                   // the step is counted among those that call
    bool shared_due_ = false;  // the step's shared expert may be computed while calls are
                               // under way
    ring<completion> ready_;
    uint64_t next_id_ = 1, looked_ns_ = 0;
    std::vector<uint32_t> row_of_token_;  // [tokens of the step] row of the call, and 1
    std::vector<uint32_t> tokens_;
    std::string failure_;
    caller_figures figures_;
    std::function<uint64_t()> current_request_;
    std::vector<planned_price> planned_prices_;
    bool hedging_enabled_ = false;
};

}  // namespace moorage::core

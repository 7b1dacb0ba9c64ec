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

#include "core/execute/cpu/cpu_model.h"
#include "core/execute/operations.h"
#include "core/execute/peers.h"
#include "core/execute/side_work.h"
#include "core/host/lent_memory.h"
#include "core/node/call_times.h"
#include "core/node/peer_node.h"
#include "core/node/planned_prices.h"

namespace moorage::core {

struct caller_figures {
    uint64_t calls = 0, replies = 0, experts = 0, pairs = 0;
    // Calls that went to another holder, by cause.
    uint64_t late = 0, failed = 0, lost = 0, wrong = 0;
    uint64_t dropped = 0;  // replies that nobody waited for
    // Experts requested again; experts from own disk.
    uint64_t retried = 0, here = 0;
    uint64_t layers_calling = 0;          // layer steps with a call at least
    uint64_t hedged = 0, hedges_won = 0;  // calls sent twice; the second came first
    uint64_t waited_ns = 0;               // time of waiting for nothing but replies
    uint64_t elsewhere = 0;    // pairs of row and expert that the step sent away, without retries
    uint64_t activations = 0;  // all pairs of the home, computed anywhere
};

// Calls to a server and their replies, retries included.
struct called_server {
    uint64_t calls = 0, rows = 0, pairs = 0;  // pairs: those that came back
};

// A call that is under way.
struct open_call {
    uint32_t server, layer, pairs;
    uint64_t request, sent_ns;
};

class caller final : public peers, public side_work, public call_answers {
public:
    static constexpr uint64_t pause_ns_min = 100'000'000, pause_ns_max = 10'000'000'000;

    // Borrowed. own_disk: experts that nobody else computes are computed here.
    caller(peer_node &of, cpu_model &compute, bool own_disk);
    ~caller() override;

    // Sends a second copy of a call that takes longer than the 99th percentile to another holder
    // that has all of its experts, if there is one. The first reply is used.
    void hedge(bool wanted) { hedges_ = wanted; }
    // [servers] prices to use in place of measured call times.
    void go_by(std::vector<planned_price> prices) { planned_ = std::move(prices); }
    // Waits until every needed server has greeted or could not be reached, or for wait_ns.
    void connect(uint64_t wait_ns);

    uint32_t servers() const override { return count_ + 1; }
    std::span<const uint8_t> distances() const override { return distances_; }
    bool serial() const override { return false; }
    bool loads() const override { return false; }
    void offers(uint32_t page, uint32_t tokens, uint32_t step_tokens,
                std::vector<remote_offer> &out) override;
    void call(const remote_call &work) override;

    bool take(completion &out) override;
    void wait() override;
    std::string failure() const override { return failure_; }

    const caller_figures &figures() const { return figures_; }
    const call_times &times(uint32_t server) const { return of_[server].times; }
    bool paused(uint32_t server) const { return of_[server].paused_until_ns > steady_ns(); }
    uint64_t under_way() const { return flights_.size(); }
    std::vector<open_call> open() const;  // the first of the calls under way
    const called_server &called(uint32_t server) const { return of_[server].called; }
    // All pairs of row and expert of the home so far.
    void count_activations(uint64_t all) { figures_.activations = all; }
    // Calls name their request. `of` gives it when they are sent.
    void name_requests(std::function<uint64_t()> of) { request_of_ = std::move(of); }

private:
    struct flight {  // a call that has been sent
        uint64_t id = 0, sent_ns = 0, due_ns = 0;
        uint64_t hedge_ns = UINT64_MAX;  // when the second copy is sent
        uint64_t twin = 0;               // the id of the other copy
        uint32_t server = 0, layer = 0, pairs = 0;
        uint64_t request = 0;              // the request that it belongs to
        std::vector<expert_work> experts;  // rising by page
        std::vector<uint32_t> tried;       // servers that did not answer it
    };
    struct one_server {
        call_times times;
        called_server called;
        uint64_t paused_until_ns = 0, pause_ns = pause_ns_min;
    };
    void answered(link &from, const frame &of) override;
    void gone(uint32_t server) override;

    bool usable(uint32_t server, uint64_t now_ns);
    void start(flight &&made);
    message_bytes write_call(const flight &of, uint64_t wait_us);
    void fail_over(flight &&lost);
    void hedge_slow(uint64_t now_ns);
    bool has_twin(const flight &lost);
    void drop_twin(const flight &done);
    uint32_t next_holder(uint32_t page, const flight &lost, uint64_t now_ns);
    // Own disk may be used, or the plan has given the page to this server since the pass began.
    bool may_here(uint32_t page) const {
        return own_disk_ || plan_.holds(node_.own().server, page);
    }
    void compute_here(std::span<const expert_work> experts);
    bool take_outputs(const flight &of, std::span<const float> outputs);
    void give_up(const flight &of, const expert_work &one);
    void pause(uint32_t server);
    void check_deadlines();
    void log(const flight &of, span_end end);
    void finish(const expert_work &one, uint64_t ns);
    void compute_waiting();

    peer_node &node_;
    const node_plan &plan_;
    cpu_model &compute_;
    const bool own_disk_;
    const uint32_t count_;  // servers of the cluster
    lent_vector<uint8_t> distances_;
    std::vector<one_server> of_;
    std::deque<flight> flights_;
    std::vector<expert_work> here_;  // experts to compute from own disk
    uint32_t layer_ = 0;             // of the step
    bool counted_ = false;           // the step is counted among those that call
    bool shared_due_ = false;        // the step's shared expert may be computed while calls are
                                     // under way
    ring<completion> ready_;
    uint64_t next_id_ = 1, looked_ns_ = 0;
    std::vector<uint32_t> local_;  // [tokens of the step] row of the call, and 1
    std::vector<uint32_t> tokens_;
    std::string failure_;
    caller_figures figures_;
    std::function<uint64_t()> request_of_;
    std::vector<planned_price> planned_;
    bool hedges_ = false;
};

}  // namespace moorage::core

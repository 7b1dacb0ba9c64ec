// peer_node.h - one process among others, in one loop: its connections, its work for others, and
// its calls to others.
//
//   peer_node node(parts);
//   node.listen("0.0.0.0:7301");
//   while (!over) node.turn(wait_ns);      // a holder: nothing else to do
//
// A home's executor calls turn() between its own operations and while it waits (caller.h). So a
// process is home and holder at once, and two homes that wait for each other serve each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/node/expert_store.h"
#include "tools/node/holder.h"
#include "tools/node/links.h"
#include "tools/node/mover.h"
#include "tools/node/node_plan.h"
#include "tools/node/plan_board.h"
#include "tools/node/request_desk.h"
#include "tools/node/span_log.h"
#include "tools/node/watch.h"
#include "tools/node/wire.h"

namespace moorage::core {

// Receives the answers to calls.
class call_answers {
public:
    virtual ~call_answers() = default;
    virtual void answered(link &sender, const frame &message) = 0;  // reply or failed
    // Nothing more comes from the server, or it takes no more calls.
    virtual void gone(uint32_t server) = 0;
};

struct node_parts {
    wire *message_wire;
    const node_plan *plan;
    node_identity identity;
    const model *loaded_model;
    thread_pool *pool;
    plan_board *board = nullptr;  // source of newer plans; null: none
    uint64_t expert_bytes = 0;    // memory for experts; 0: no bound
    mover_options moving = {};
    uint64_t behind_ns = 10'000'000'000;  // how long a caller may take to confirm a newer epoch
};

class peer_node final : public link_events {
public:
    // All borrowed but the plan, which is the one to begin with. A server of the plan holds what
    // the plan gives it; no_server holds nothing.
    explicit peer_node(const node_parts &parts);

    result<std::string> listen(const std::string &address) { return links_.listen(address); }
    void dial() { links_.dial(beside_its_node_); }
    // Another process is the node of this server.
    void set_beside_its_node() { beside_its_node_ = true; }
    void attach(call_answers *answers) { answers_ = answers; }
    // The desk for requests of others. null: this node is no home. Borrowed.
    void set_desk(request_desk *desk) { desk_ = desk; }
    const request_desk *desk() const { return desk_; }
    // Sets the heartbeats that say who is dead. null: nobody is.
    void set_heartbeats(const watch *heartbeats) { heartbeats_ = heartbeats; }
    bool is_dead(uint32_t server) const {
        return heartbeats_ && heartbeats_->pulse_of(server) == pulse::dead;
    }
    const watch *heartbeats() const { return heartbeats_; }
    // Whether the server refuses this node, for calls or for heartbeats, and its reason.
    bool is_refused_by(uint32_t server, std::string *reason = nullptr) const;
    // The first server's reason, if all callable holders refuse this node because its files or its
    // certificate are not theirs. Empty: they do not.
    std::string refused_by_all() const;
    // Handles messages for at most so long, and computes work that others wait for.
    void turn(uint64_t wait_ns);
    // Serves until `should_stop` returns true. Then drains: waiting work is answered, until
    // drain_end_ns().
    void serve(const std::function<bool()> &should_stop);
    static constexpr uint64_t drain_ns = 4'000'000'000;
    // From the first call on, no more calls and requests are taken. Those under way have until
    // then.
    uint64_t drain_end_ns();

    links &connections() { return links_; }
    const links &connections() const { return links_; }
    const holder &serving() const { return holder_; }
    const expert_store &experts() const { return experts_; }
    const mover &moving() const { return mover_; }
    // Spans to be added from the loop. They may be read from any thread.
    span_log &spans() { return spans_; }
    // Takes the newest plan of the board, if there is one. turn() does it, too.
    void follow();
    // Tells the leader what a home of this server asked for, page by page. False: there is no
    // leader.
    bool report_demand(std::span<const uint64_t> page_counts, uint64_t window_ms);
    // Migration between this node and the server, charged against the calls between them.
    migration_debt &debt(uint32_t server) { return debts_[server]; }
    // Pages in memory that the plan gives to others. They stay until nobody calls by an earlier
    // plan.
    uint64_t leaving() const { return leaving_.size(); }
    // Servers that have to confirm an epoch before those pages go: "two at 10.0.0.2:40312".
    std::vector<std::string> waited_for();
    const node_plan &plan() const { return plan_; }
    const node_identity &identity() const { return identity_; }
    const model &loaded_model() const { return model_; }

private:
    void ready(link &) override {}
    bool arrived(link &sender, const frame &message, uint64_t wire_message) override;
    bool handle_caller_message(link &sender, const frame &message, uint64_t wire_message);
    void give_range(link &sender, const frame &message);
    void give_held_back(uint64_t connection = 0);
    void gone(link &peer) override;
    void adopt(const plan_record &next);
    void take_held();
    void forget_left();
    bool is_behind(const link &peer, uint64_t epoch) const;
    std::string describe_peer(const link &peer) const;
    void leave_behind();
    void report_state();

    node_plan plan_;
    const node_identity identity_;
    const model &model_;
    plan_board *const board_;
    expert_store experts_;
    links links_;
    span_log spans_;
    holder holder_;
    std::vector<migration_debt> debts_;  // [servers]
    mover mover_;
    struct held_range {  // a range for a server whose calls were delayed too much
        uint64_t connection, id, until_ns;
        std::vector<std::byte> body;
    };
    std::vector<held_range> held_back_;  // one for each connection
    struct leaving_page {
        uint32_t page;
        uint64_t epoch;  // from this epoch on it is not this node's
        uint64_t since_ns;
    };
    std::vector<leaving_page> leaving_;
    const uint64_t behind_ns_;
    uint64_t drain_end_ns_ = 0;           // 0: it does not drain
    uint64_t version_ = 0, said_ns_ = 0;  // version of the board that was seen
    member_record measured_;              // measured now and then; others are told of each change
    uint64_t measured_ns_ = 0;
    bool beside_its_node_ = false;
    call_answers *answers_ = nullptr;
    request_desk *desk_ = nullptr;
    const watch *heartbeats_ = nullptr;
};

}  // namespace moorage::core

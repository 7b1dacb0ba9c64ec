// links.h - the connections of a node: dialed and accepted, greeted, kept, and found dead.
//
// The caller connects. Calls and replies of a pair use the caller's connection, so two nodes that
// call each other have two connections. A connection takes part once both sides have greeted
// (docs/protocol.md). Before that, and after it breaks a rule, its messages are ignored. If a
// server refuses or does not answer, it is tried again after a pause. The pause doubles and is
// spread at random.
//
// Places: a connection that greets as a server of the plan has one of server_places, which no other
// server takes. Guests greet as no server and have guest_places. Connections without a greeting
// have greeting_places: the oldest gives way to a new one.
//
// One thread drives it. Bounds: a connection that has not taken waiting_bytes_max of its answers is
// not read any further until it has. The wire and in the end the other side then stop, too. A
// connection that has not taken waiting_messages_max of them is dropped.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/random.h"
#include "core/base/steady_time.h"
#include "tools/node/node_plan.h"
#include "tools/node/wire.h"
#include "tools/protocol/frame.h"

namespace moorage::core {

using message_bytes = std::vector<std::byte>;

// How a node introduces itself to others. Servers are numbered as in the plan.
struct node_identity {
    uint32_t server = no_server;
    uint64_t incarnation = 0;
    std::string software;
};

struct link {
    enum class state_kind : uint8_t { connecting, greeting, ready, closing };
    uint64_t connection = 0;
    int32_t channel = MOORAGE_WIRE_CALLS;
    bool dialed = false;
    uint32_t dial = 0;  // number among the dialed connections of this node
    state_kind state = state_kind::connecting;
    bool draining = false;        // it said goodbye
    uint32_t server = no_server;  // the other side's server; for an accepted connection, as it says
                                  // itself
    uint64_t incarnation = 0;     // incarnation of the other side, once greeted
    uint64_t epoch = 0;           // epoch of the other side's plan, in its last message
    uint64_t named_epoch = 0;     // the epoch that the log has reported as not yet confirmed
    uint64_t since_ns = 0;        // since when it is in this state
    uint64_t heard_ns = 0;        // time of its latest message
    uint64_t rows_max = 0;        // largest call that the other side takes
    std::string address;
    bool secure = false;                // it has proved its identity ...
    std::string identity;               // ... which is this
    std::deque<message_bytes> waiting;  // messages that the wire has not taken yet
    uint64_t waiting_bytes = 0;
    std::deque<moorage_wire_event> unread;  // messages to read when `waiting` is shorter
    uint64_t sent_bytes = 0, received_bytes = 0;
};

// The node's reactions to events of its connections.
class link_events {
public:
    virtual ~link_events() = default;
    virtual void ready(link &) = 0;
    // A message other than greetings and pings. `wire_message`: its number at the wire. Returning
    // true keeps it, until links::release().
    virtual bool arrived(link &sender, const frame &message, uint64_t wire_message) = 0;
    // It was ready, or draining, and is no longer. Messages sent to it will not be answered.
    virtual void gone(link &) = 0;
};

// Counts since the start.
struct link_figures {
    uint64_t connects = 0, accepts = 0, losses = 0;
    uint64_t messages_in = 0, messages_out = 0, bytes_in = 0, bytes_out = 0;
    std::array<uint64_t, refusal_reasons> refused{};  // messages and connections of others that
                                                      // were refused
};

class links {
public:
    static constexpr uint64_t greeting_ns = 2'000'000'000;
    static constexpr uint64_t waiting_bytes_max = 16 << 20;
    static constexpr uint64_t retry_ns_min = 50'000'000, retry_ns_max = 5'000'000'000;
    // Retry times for servers that are there, but had no place or lost it.
    static constexpr uint64_t retry_ns_busy = 400'000'000;
    // A server that ends so many connections in a row without a greeting does not want this node.
    static constexpr uint32_t dropped_max = 5;
    static constexpr size_t guest_places = 512, greeting_places = 128, server_places = 8;
    // The number of connections that a wire needs for all of them, with the dialed ones.
    static constexpr size_t connections_max(size_t servers) {
        return guest_places + greeting_places + (server_places + 2) * servers;
    }

    // All borrowed.
    links(wire &message_wire, const node_plan &plan, const node_identity &identity,
          link_events &events);
    // Lets others connect.
    result<std::string> listen(const std::string &address);
    // Connects to every other server that has an address, and keeps doing so. own_too: also to its
    // own server, if that is another process.
    void dial(bool own_too = false);
    // Handles what has happened meanwhile, or happens within `wait_ns`.
    void turn(uint64_t wait_ns);

    // The dialed connection of a server that takes calls; null: there is none now.
    link *call_link(uint32_t server);
    // The connection for bulk data. It is dialed at the first request.
    link *bulk_link(uint32_t server);
    const std::string &bulk_trouble(uint32_t server) const {
        return dials_[plan_.servers.size() + server].trouble;
    }
    // Tells all which plan this node uses now.
    void tell_epoch();
    // Finds a connection by its number at the wire. null: it is gone.
    link *find(uint64_t connection);
    // Sends what was written after begin_frame(). The other arguments go into its header.
    // False: the link is gone, or has been given up.
    bool send(link &target, message_bytes &&written, message_kind kind, uint64_t id,
              uint64_t request = 0);
    // Memory of earlier messages, for reuse.
    message_bytes take_memory();
    void release(uint64_t wire_message) { wire_.release(wire_message); }
    // Tells the other side why, and closes the connection afterwards.
    void refuse(link &peer, refusal_reason reason, const std::string &text);
    void count_refusal(refusal_reason reason) { ++figures_.refused[static_cast<size_t>(reason)]; }
    // Takes no more calls. Says so to all, and refuses new connections.
    void drain();
    bool draining() const { return draining_; }
    // Whether nothing is left to send.
    bool idle() const;
    void close(link &peer) { lose(peer, false); }
    size_t count_open() const { return links_.size(); }
    // The other side says what is wrong, and will close.
    void handle_refusal(link &sender, const frame &message);
    const link_figures &figures() const { return figures_; }
    // Why the server was not reached the last time. Empty: it was reached, or not tried.
    const std::string &trouble(uint32_t server) const { return dials_[server].trouble; }
    // Whether that may be over soon: the server is there, but had no place or no time for this
    // node.
    bool is_trouble_temporary(uint32_t server) const { return dials_[server].temporary; }
    // Whether that is a lasting refusal: another cluster, model or version, or no trust.
    bool is_refused_by(uint32_t server) const { return dials_[server].refused; }
    template <class Body>
    void for_each(Body &&body) {
        for (auto &[connection, peer] : links_) body(*peer);
    }

private:
    struct dial_state {  // attempts to reach a server
        uint64_t connection = 0;
        uint64_t again_ns = 0, pause_ns = retry_ns_min;
        std::string trouble;            // of the latest attempt that ended
        bool trouble_reported = false;  // the attempt under way has reported its trouble
        bool temporary = false;         // the trouble may be over soon
        bool refused = false;           // it lasts until somebody changes files or certificates
        uint32_t dropped = 0;           // attempts in a row that ended without a greeting
        bool wanted = false;
    };
    struct lent_message {
        uint64_t connection;
        message_bytes bytes;
    };
    void dial_due(uint64_t now_ns);
    void check_greetings(uint64_t now_ns);
    void note_trouble(const link &dialed, refusal_reason reason, const std::string &text);
    void drop_ungreeted(link &peer, refusal_reason reason);
    bool has_place(const greeting &theirs, uint32_t server, std::string &text) const;
    uint64_t due_ns() const;
    void handle(const moorage_wire_event &event);
    void connected(const moorage_wire_event &event);
    void receive(const moorage_wire_event &event);
    bool handle_message(link &sender, const moorage_wire_event &event);
    void greeted(link &sender, const frame &message);
    void answer_ping(link &sender, const frame &message);
    void say_hello(link &target, message_kind kind);
    refusal_reason find_difference(const greeting &theirs, uint64_t epoch, std::string &text) const;
    link *ready_link(size_t dial);
    void closed(const moorage_wire_event &event);
    void lose(link &peer, bool at_once);
    void flush(link &target);
    void read_on(link &sender);
    bool hand_to_wire(link &target, message_bytes &&message);

    wire &wire_;
    const node_plan &plan_;
    const node_identity &identity_;
    link_events &events_;
    std::map<uint64_t, std::unique_ptr<link>> links_;  // by connection
    std::vector<dial_state> dials_;                    // [2, servers] for calls, for bulk
    std::deque<uint64_t> greetings_;  // connections that have not greeted, in the order of since_ns
    std::unordered_map<uint64_t, lent_message> lent_;  // by user
    std::vector<message_bytes> memory_;
    uint64_t next_user_ = 1;
    random_stream chance_;
    link_figures figures_;
    bool draining_ = false;
};

}  // namespace moorage::core

// links.cpp - connects, greets, reads frames, and notices lost connections.
#include "tools/node/links.h"

#include <algorithm>
#include <bit>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "tools/node/fingerprint.h"

namespace moorage::core {

namespace {

constexpr size_t memory_max = 64;  // messages whose memory is kept
constexpr uint64_t waiting_messages_max = 4096;

// Checks the body of messages that not every receiver reads.
objection check_body(const frame &message) {
    pong_view answer;
    refusal_view refusal;
    switch (message.header.kind) {
        case message_kind::pong:
            return read(message.body, answer);
        case message_kind::goodbye:
            return read(message.body, refusal);
        case message_kind::cancel:
            if (message.body.empty()) return {};
            return {refusal_reason::size,
                    format("a cancellation with {} bytes; it has none", message.body.size())};
        default:
            return {};
    }
}

// Whether the server is there and may have a place for the next attempt.
bool is_temporary(int32_t reason) {
    return reason == MOORAGE_WIRE_LOST || reason == MOORAGE_WIRE_TOO_MANY ||
           reason == MOORAGE_WIRE_TOO_SLOW;
}

}  // namespace

links::links(wire &message_wire, const node_plan &plan, const node_identity &identity,
             link_events &events)
    : wire_(message_wire),
      plan_(plan),
      identity_(identity),
      events_(events),
      dials_(2 * plan.servers.size()),
      chance_(identity.incarnation, 0) {}

result<std::string> links::listen(const std::string &address) { return wire_.listen(address); }

void links::dial(bool own_too) {
    for (uint32_t server = 0; server < plan_.servers.size(); ++server)
        dials_[server].wanted =
            (own_too || server != identity_.server) && !plan_.servers[server].addresses.empty();
    dial_due(steady_ns());
}

void links::dial_due(uint64_t now_ns) {
    const size_t servers = plan_.servers.size();
    for (uint32_t index = 0; index < dials_.size(); ++index) {
        dial_state &dial = dials_[index];
        if (!dial.wanted || dial.connection != 0 || now_ns < dial.again_ns) continue;
        const auto server = static_cast<uint32_t>(index % servers);
        const int32_t channel = index < servers ? MOORAGE_WIRE_CALLS : MOORAGE_WIRE_BULK;
        const auto begun = wire_.connect(channel, plan_.servers[server].addresses);
        if (!begun) {
            dial.trouble = begun.failure().text;
            dial.temporary = dial.refused = false;
            dial.again_ns = now_ns + retry_ns_max;
            continue;
        }
        auto new_link = std::make_unique<link>();
        dial.trouble_reported = false;
        new_link->connection = dial.connection = *begun;
        new_link->dialed = true;
        new_link->channel = channel;
        new_link->dial = index;
        new_link->server = server;
        new_link->since_ns = now_ns;
        links_.emplace(*begun, std::move(new_link));
    }
}

void links::drop_ungreeted(link &peer, refusal_reason reason) {
    count_refusal(reason);
    // A server that greets late is busy: this node dials it again.
    if (peer.dialed)
        note_trouble(peer, refusal_reason::busy,
                     format("it has not greeted for {} s", greeting_ns / 1'000'000'000));
    peer.state = link::state_kind::closing;
    wire_.close(peer.connection, true);
}

// A connection without a greeting is not waited for, and does not keep others out.
void links::check_greetings(uint64_t now_ns) {
    std::erase_if(greetings_, [this](uint64_t connection) {
        const link *const peer = find(connection);
        return !peer || peer->state != link::state_kind::greeting;
    });
    size_t beyond = 0;  // as many of those that connected have to give way
    for (const uint64_t connection : greetings_) beyond += !find(connection)->dialed;
    beyond -= std::min(beyond, greeting_places);
    std::erase_if(greetings_, [&](uint64_t connection) {
        link &peer = *find(connection);
        const bool late = now_ns - peer.since_ns >= greeting_ns;
        const bool gives_way = !peer.dialed && beyond != 0;
        if (!late && !gives_way) return false;
        if (!peer.dialed && beyond != 0) --beyond;
        drop_ungreeted(peer, late ? refusal_reason::unexpected : refusal_reason::busy);
        return true;
    });
}

uint64_t links::due_ns() const {
    uint64_t due = UINT64_MAX;
    for (const dial_state &dial : dials_)
        if (dial.wanted && dial.connection == 0) due = std::min(due, dial.again_ns);
    if (greetings_.empty()) return due;
    const auto oldest = links_.find(greetings_.front());
    return oldest == links_.end() ? due : std::min(due, oldest->second->since_ns + greeting_ns);
}

void links::turn(uint64_t wait_ns) {
    uint64_t now_ns = steady_ns();
    dial_due(now_ns);
    check_greetings(now_ns);
    if (const uint64_t due = due_ns(); wait_ns != 0 && due != UINT64_MAX)
        wait_ns = std::min(wait_ns, due > now_ns ? due - now_ns : 0);
    std::array<moorage_wire_event, 64> events;
    const uint32_t count = wire_.poll(events, wait_ns);
    for (uint32_t i = 0; i < count; ++i) handle(events[i]);
    if (greetings_.size() > greeting_places) check_greetings(steady_ns());
}

void links::handle(const moorage_wire_event &event) {
    switch (event.kind) {
        case MOORAGE_WIRE_CONNECTED:
        case MOORAGE_WIRE_ACCEPTED:
            return connected(event);
        case MOORAGE_WIRE_MESSAGE:
            return receive(event);
        case MOORAGE_WIRE_SENT:
            if (const auto entry = lent_.find(event.user); entry != lent_.end()) {
                if (memory_.size() < memory_max) memory_.push_back(std::move(entry->second.bytes));
                lent_.erase(entry);
            }
            return;
        case MOORAGE_WIRE_WRITABLE:
            if (link *const peer = find(event.connection)) {
                flush(*peer);
                read_on(*peer);
            }
            return;
        case MOORAGE_WIRE_CLOSED:
            return closed(event);
        case MOORAGE_WIRE_TURNED_AWAY:
            figures_.refused[static_cast<size_t>(refusal_reason::not_ours)] += event.count;
            return;
        default:
            return;
    }
}

void links::connected(const moorage_wire_event &event) {
    link *peer = find(event.connection);
    if (!peer) {
        auto new_link = std::make_unique<link>();
        new_link->connection = event.connection;
        new_link->channel = event.channel;
        peer = links_.emplace(event.connection, std::move(new_link)).first->second.get();
        ++figures_.accepts;
    }
    peer->state = link::state_kind::greeting;
    peer->since_ns = steady_ns();
    greetings_.push_back(peer->connection);
    peer->address = event.plugin_address ? event.plugin_address : "";
    peer->secure = (event.flags & MOORAGE_WIRE_SECURE) != 0;
    peer->identity = event.plugin_identity ? event.plugin_identity : "";
    if (peer->dialed) say_hello(*peer, message_kind::hello);
}

void links::say_hello(link &target, message_kind kind) {
    message_bytes written = take_memory();
    write(written,
          greeting{
              feature_weights, plan_.cluster, plan_.model, plan_.plan, plan_.sizes,
              identity_.server < plan_.servers.size() ? plan_.servers[identity_.server].name : "",
              plan_.model_name, identity_.software});
    send(target, std::move(written), kind, 0);
}

void links::receive(const moorage_wire_event &event) {
    link *const sender = find(event.connection);
    if (!sender) return wire_.release(event.message);
    sender->unread.push_back(event);
    read_on(*sender);
}

// Unread messages follow when the other side has taken its answers. The wire reports that, because
// it was full.
void links::read_on(link &sender) {
    const auto waits = [&] {
        return !sender.dialed && sender.state == link::state_kind::ready &&
               sender.waiting_bytes > waiting_bytes_max;
    };
    while (!sender.unread.empty() && !waits()) {
        const moorage_wire_event next = sender.unread.front();
        sender.unread.pop_front();
        if (sender.state == link::state_kind::closing || !handle_message(sender, next))
            wire_.release(next.message);
    }
}

// Whether somebody keeps the message.
bool links::handle_message(link &sender, const moorage_wire_event &event) {
    ++figures_.messages_in;
    figures_.bytes_in += event.bytes;
    sender.received_bytes += event.bytes;
    sender.heard_ns = steady_ns();
    frame message;
    const std::span bytes(static_cast<const std::byte *>(event.plugin_data),
                          static_cast<size_t>(event.bytes));
    if (const objection problem = read_frame(bytes, message);
        problem.reason != refusal_reason::none) {
        refuse(sender, problem.reason, problem.text);
        return false;
    }
    if (sender.state == link::state_kind::greeting) {
        greeted(sender, message);
        return false;
    }
    if (message.header.incarnation != sender.incarnation ||
        message.header.sender != sender.server) {
        refuse(sender, refusal_reason::incarnation, "it is not who it was when it greeted");
        return false;
    }
    if (const objection problem = check_body(message); problem.reason != refusal_reason::none) {
        refuse(sender, problem.reason, problem.text);
        return false;
    }
    sender.epoch = std::max(sender.epoch, message.header.epoch);
    switch (message.header.kind) {
        case message_kind::ping:
            answer_ping(sender, message);
            return false;
        case message_kind::goodbye:
            sender.draining = true;
            return events_.arrived(sender, message, event.message);
        case message_kind::hello:
        case message_kind::welcome:
            refuse(sender, refusal_reason::unexpected, "it has greeted already");
            return false;
        default:
            return events_.arrived(sender, message, event.message);
    }
}

void links::answer_ping(link &sender, const frame &message) {
    const uint64_t now_ns = steady_ns();
    ping_view ping;
    if (const objection problem = read(message.body, ping); problem.reason != refusal_reason::none)
        return refuse(sender, problem.reason, problem.text);
    message_bytes written = take_memory();
    write(written, pong_view{ping.sent_ns, now_ns, steady_ns(), draining_, 0});
    send(sender, std::move(written), message_kind::pong, 0);
}

refusal_reason links::find_difference(const greeting &theirs, uint64_t epoch,
                                      std::string &text) const {
    const auto explain = [&](const char *subject, auto their_value, auto ours,
                             const std::string &keys) {
        text = format(
            "{} {:x} is the caller's, {:x} this node's: {} differ; start both with the "
            "same files",
            subject, their_value, ours, keys);
    };
    if (theirs.cluster != plan_.cluster)
        return explain("cluster", theirs.cluster, plan_.cluster,
                       differing_key(theirs.cluster, plan_.cluster)),
               refusal_reason::cluster;
    if (theirs.model != plan_.model || theirs.sizes.layers != plan_.sizes.layers ||
        theirs.sizes.experts != plan_.sizes.experts || theirs.sizes.hidden != plan_.sizes.hidden) {
        text = format(
            "model {} ({:x}, {} layers of {} experts, hidden {}) is the caller's, {} "
            "({:x}, {} of {}, {}) this node's; give both the same weights",
            visible(theirs.model_name), theirs.model, theirs.sizes.layers, theirs.sizes.experts,
            theirs.sizes.hidden, plan_.model_name, plan_.model, plan_.sizes.layers,
            plan_.sizes.experts, plan_.sizes.hidden);
        return refusal_reason::model;
    }
    // Two different epochs may both be in force for a moment. One epoch has one plan.
    if (epoch == plan_.epoch && theirs.plan != plan_.plan)
        return explain("plan", theirs.plan, plan_.plan,
                       "[placement], or servers' memory and workloads in [cluster],"),
               refusal_reason::epoch;
    if (draining_) return text = "this node takes no more calls", refusal_reason::draining;
    return refusal_reason::none;
}

// Among those that have connected and greeted there is room for one more of its kind.
bool links::has_place(const greeting &theirs, uint32_t server, std::string &text) const {
    const bool is_guest = server >= plan_.servers.size();
    const size_t places = is_guest ? guest_places : server_places;
    size_t taken = 0;
    for (const auto &[connection, peer] : links_)
        taken += !peer->dialed && peer->state == link::state_kind::ready &&
                 (is_guest ? peer->server >= plan_.servers.size() : peer->server == server);
    if (taken < places) return true;
    text = is_guest ? format(
                          "{} clients are connected, the most that a node takes beside the "
                          "servers of its plan; try again",
                          taken)
                    : format(
                          "{} connections of {} are there, the most that a server has; end "
                          "what else calls itself so",
                          taken, visible(theirs.server));
    return false;
}

// The first message of a connection: a greeting, or why there is none.
void links::greeted(link &sender, const frame &message) {
    const auto wanted = sender.dialed ? message_kind::welcome : message_kind::hello;
    if (sender.dialed && message.header.kind == message_kind::refusal)
        return handle_refusal(sender, message);
    greeting theirs;
    if (message.header.kind != wanted)
        return refuse(sender, refusal_reason::unexpected, "a connection begins with a greeting");
    if (const objection problem = read(message.body, theirs);
        problem.reason != refusal_reason::none)
        return refuse(sender, problem.reason, problem.text);
    if (theirs.sizes.rows_max == 0)
        return refuse(sender, refusal_reason::size,
                      "the longest call that the other takes has 0 rows; it is to be 1 at least");
    std::string text;
    if (const refusal_reason reason = find_difference(theirs, message.header.epoch, text);
        reason != refusal_reason::none)
        return refuse(sender, reason, text);
    if (sender.dialed && message.header.sender != sender.server)
        return refuse(sender, refusal_reason::cluster,
                      format("server {} answers where server {} is meant to", message.header.sender,
                             sender.server));
    if (const std::string named = message.header.sender < plan_.servers.size()
                                      ? plan_.servers[message.header.sender].name
                                      : "no server";
        sender.secure && message.header.sender != no_server && sender.identity != named)
        return refuse(sender, refusal_reason::cluster,
                      format("its certificate is {}'s, and it says that it is {}; give each server "
                             "a certificate with its name",
                             visible(sender.identity), named));
    if (!sender.dialed && !has_place(theirs, message.header.sender, text))
        return refuse(sender, refusal_reason::busy, text);
    sender.server = message.header.sender;
    sender.incarnation = message.header.incarnation;
    sender.epoch = message.header.epoch;
    sender.rows_max = theirs.sizes.rows_max;
    sender.state = link::state_kind::ready;
    sender.since_ns = steady_ns();
    if (sender.dialed) {
        ++figures_.connects;
        dials_[sender.dial].pause_ns = retry_ns_min;
        dials_[sender.dial].trouble.clear();
        dials_[sender.dial].temporary = dials_[sender.dial].refused = false;
    } else {
        say_hello(sender, message_kind::welcome);
    }
    events_.ready(sender);
}

void links::note_trouble(const link &dialed, refusal_reason reason, const std::string &text) {
    dial_state &dial = dials_[dialed.dial];
    dial.trouble = text;
    dial.temporary = reason == refusal_reason::busy;
    dial.refused = dialed.state == link::state_kind::greeting && !dial.temporary &&
                   reason != refusal_reason::draining;
    dial.trouble_reported = true;
}

void links::refuse(link &peer, refusal_reason reason, const std::string &text) {
    count_refusal(reason);
    // A flood of them shall not fill the log.
    if (std::has_single_bit(figures_.refused[static_cast<size_t>(reason)]))
        log_warning(format("node: {} refused ({}): {}",
                           peer.address.empty() ? "a connection" : visible(peer.address),
                           name_of(reason), text));
    if (peer.dialed) note_trouble(peer, reason, text);
    message_bytes written = take_memory();
    write(written, refusal_view{.reason = reason, .text = text});
    send(peer, std::move(written), message_kind::refusal, 0);
    lose(peer, false);
}

void links::handle_refusal(link &sender, const frame &message) {
    refusal_view refusal;
    const bool is_readable = read(message.body, refusal).reason == refusal_reason::none;
    const std::string text =
        is_readable ? visible(refusal.text) : "it refuses and does not say why";
    if (sender.dialed)
        note_trouble(sender, is_readable ? refusal.reason : refusal_reason::unexpected, text);
    log_info(format("node: {} says: {}", visible(sender.address), text));
    lose(sender, true);
}

link *links::ready_link(size_t dial) {
    link *const peer = find(dials_[dial].connection);
    return peer && peer->state == link::state_kind::ready && !peer->draining ? peer : nullptr;
}

link *links::call_link(uint32_t server) {
    return server < plan_.servers.size() ? ready_link(server) : nullptr;
}

link *links::bulk_link(uint32_t server) {
    if (server >= plan_.servers.size()) return nullptr;
    const size_t index = plan_.servers.size() + server;
    if (!dials_[index].wanted) {
        dials_[index].wanted = !plan_.servers[server].addresses.empty();
        if (!dials_[index].wanted) dials_[index].trouble = "it has no address";
        dial_due(steady_ns());
    }
    return ready_link(index);
}

void links::tell_epoch() {
    for_each([&](link &peer) {
        if (peer.state != link::state_kind::ready) return;
        message_bytes written = take_memory();
        write(written, ping_view{steady_ns()});
        send(peer, std::move(written), message_kind::ping, 0);
    });
}

link *links::find(uint64_t connection) {
    const auto found = links_.find(connection);
    return found == links_.end() ? nullptr : found->second.get();
}

message_bytes links::take_memory() {
    message_bytes memory;
    if (!memory_.empty()) {
        memory = std::move(memory_.back());
        memory_.pop_back();
    }
    begin_frame(memory);
    return memory;
}

bool links::send(link &target, message_bytes &&written, message_kind kind, uint64_t id,
                 uint64_t request) {
    if (target.state == link::state_kind::closing) return false;
    end_frame(written, {.kind = kind,
                        .sender = identity_.server,
                        .incarnation = identity_.incarnation,
                        .epoch = plan_.epoch,
                        .id = id,
                        .request = request});
    ++figures_.messages_out;
    figures_.bytes_out += written.size();
    target.sent_bytes += written.size();
    if (target.waiting.empty()) return hand_to_wire(target, std::move(written));
    if (target.waiting.size() >= waiting_messages_max) {
        lose(target, true);
        return false;
    }
    target.waiting_bytes += written.size();
    target.waiting.push_back(std::move(written));
    return true;
}

bool links::hand_to_wire(link &target, message_bytes &&message) {
    const uint64_t user = next_user_++;
    const moorage_wire_part part{message.data(), message.size(), 0};
    switch (wire_.send(target.connection, {&part, 1}, user)) {
        case MOORAGE_WIRE_DONE:
            if (memory_.size() < memory_max) memory_.push_back(std::move(message));
            return true;
        case MOORAGE_WIRE_TAKEN:
            lent_.emplace(user, lent_message{target.connection, std::move(message)});
            return true;
        case MOORAGE_WIRE_FULL:
            target.waiting_bytes += message.size();
            target.waiting.push_front(std::move(message));
            return true;
        default:
            return false;
    }
}

void links::flush(link &target) {
    while (!target.waiting.empty()) {
        message_bytes next = std::move(target.waiting.front());
        target.waiting.pop_front();
        const size_t old_count = target.waiting.size();
        target.waiting_bytes -= next.size();
        if (!hand_to_wire(target, std::move(next)) || target.waiting.size() > old_count) return;
    }
}

void links::drain() {
    draining_ = true;
    for_each([&](link &peer) {
        if (peer.state != link::state_kind::ready) return;
        message_bytes written = take_memory();
        write(written, refusal_view{.reason = refusal_reason::draining, .text = "the node ends"});
        send(peer, std::move(written), message_kind::goodbye, 0);
    });
}

bool links::idle() const {
    return lent_.empty() && std::ranges::all_of(links_, [](const auto &entry) {
               return entry.second->waiting.empty();
           });
}

// Its CLOSED comes later.
void links::lose(link &peer, bool at_once) {
    if (peer.state == link::state_kind::closing) return;
    const bool known = peer.state == link::state_kind::ready;
    peer.state = link::state_kind::closing;
    wire_.close(peer.connection, at_once);
    if (known) events_.gone(peer);
}

void links::closed(const moorage_wire_event &event) {
    const auto found = links_.find(event.connection);
    if (found == links_.end()) return;
    const std::unique_ptr<link> peer = std::move(found->second);
    links_.erase(found);
    for (const moorage_wire_event &never : peer->unread) wire_.release(never.message);
    std::erase_if(lent_,
                  [&](const auto &entry) { return entry.second.connection == peer->connection; });
    if (peer->dialed) {
        dial_state &dial = dials_[peer->dial];
        dial.connection = 0;
        const bool is_dropped = peer->state != link::state_kind::ready && !dial.trouble_reported &&
                                (event.reason == MOORAGE_WIRE_BY_PEER ||
                                 event.reason == MOORAGE_WIRE_LOST);
        dial.dropped = is_dropped ? dial.dropped + 1 : 0;
        // Between half of the pause and all of it. So nodes that lost the same node do not come
        // back in step.
        dial.again_ns = steady_ns() + dial.pause_ns / 2 + chance_.below(dial.pause_ns / 2 + 1);
        if (!dial.trouble_reported) {
            dial.temporary = is_temporary(event.reason);
            dial.refused =
                event.reason == MOORAGE_WIRE_STRANGER || event.reason == MOORAGE_WIRE_MALFORMED;
            if (event.plugin_text) dial.trouble = visible(event.plugin_text);
        }
        if (dial.dropped >= dropped_max) {
            dial.refused = true;
            dial.trouble = format(
                "{} connections in a row ended before a greeting: perhaps only one side has "
                "wire.security = \"tls\", or it does not accept this node's certificate (its "
                "log says so){}",
                dial.dropped,
                event.plugin_text ? format("; {}", visible(event.plugin_text)) : std::string());
        }
        dial.pause_ns = std::min(2 * dial.pause_ns, dial.temporary ? retry_ns_busy : retry_ns_max);
    }
    if (peer->state != link::state_kind::ready) return;
    ++figures_.losses;
    peer->state = link::state_kind::closing;
    events_.gone(*peer);
}

}  // namespace moorage::core

// links.cpp - connects, greets, reads frames, and notices lost connections.
#include "core/node/links.h"

#include <algorithm>
#include <bit>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "core/node/fingerprint.h"

namespace moorage::core {

namespace {

constexpr size_t memory_max = 64;  // messages whose memory is kept
constexpr uint64_t waiting_messages_max = 4096;

// Checks the body of messages that not every receiver reads.
objection body_of(const frame &of) {
    pong_view answer;
    refusal_view why;
    switch (of.header.kind) {
        case message_kind::pong:
            return read(of.body, answer);
        case message_kind::goodbye:
            return read(of.body, why);
        case message_kind::cancel:
            if (of.body.empty()) return {};
            return {refusal_reason::size,
                    format("a cancellation with {} bytes; it has none", of.body.size())};
        default:
            return {};
    }
}

// Whether the server is there and may have a place for the next attempt.
bool passes(int32_t reason) {
    return reason == MOORAGE_WIRE_LOST || reason == MOORAGE_WIRE_TOO_MANY ||
           reason == MOORAGE_WIRE_TOO_SLOW;
}

}  // namespace

links::links(wire &over, const node_plan &plan, const node_identity &own, link_events &events)
    : wire_(over),
      plan_(plan),
      own_(own),
      events_(events),
      dials_(2 * plan.servers.size()),
      chance_(own.incarnation, 0) {}

result<std::string> links::listen(const std::string &address) { return wire_.listen(address); }

void links::dial(bool own_too) {
    for (uint32_t server = 0; server < plan_.servers.size(); ++server)
        dials_[server].wanted =
            (own_too || server != own_.server) && !plan_.servers[server].addresses.empty();
    dial_due(steady_ns());
}

void links::dial_due(uint64_t now_ns) {
    const size_t servers = plan_.servers.size();
    for (uint32_t at = 0; at < dials_.size(); ++at) {
        dialing &one = dials_[at];
        if (!one.wanted || one.connection != 0 || now_ns < one.again_ns) continue;
        const auto server = static_cast<uint32_t>(at % servers);
        const int32_t channel = at < servers ? MOORAGE_WIRE_CALLS : MOORAGE_WIRE_BULK;
        const auto begun = wire_.connect(channel, plan_.servers[server].addresses);
        if (!begun) {
            one.trouble = begun.failure().text;
            one.passes = one.refused = false;
            one.again_ns = now_ns + retry_ns_max;
            continue;
        }
        auto made = std::make_unique<link>();
        one.told = false;
        made->connection = one.connection = *begun;
        made->dialed = true;
        made->channel = channel;
        made->dial = at;
        made->server = server;
        made->since_ns = now_ns;
        links_.emplace(*begun, std::move(made));
    }
}

void links::drop_ungreeted(link &one, refusal_reason why) {
    count(why);
    // A server that greets late is busy: this node dials it again.
    if (one.dialed)
        note_trouble(one, refusal_reason::busy,
                     format("it has not greeted for {} s", greeting_ns / 1'000'000'000));
    one.stands = link::stand::closing;
    wire_.close(one.connection, true);
}

// A connection without a greeting is not waited for, and does not keep others out.
void links::check_greetings(uint64_t now_ns) {
    std::erase_if(greetings_, [this](uint64_t connection) {
        const link *const one = find(connection);
        return !one || one->stands != link::stand::greeting;
    });
    size_t beyond = 0;  // as many of those that connected have to give way
    for (const uint64_t connection : greetings_) beyond += !find(connection)->dialed;
    beyond -= std::min(beyond, greeting_places);
    std::erase_if(greetings_, [&](uint64_t connection) {
        link &one = *find(connection);
        const bool late = now_ns - one.since_ns >= greeting_ns;
        const bool gives_way = !one.dialed && beyond != 0;
        if (!late && !gives_way) return false;
        if (!one.dialed && beyond != 0) --beyond;
        drop_ungreeted(one, late ? refusal_reason::unexpected : refusal_reason::busy);
        return true;
    });
}

uint64_t links::due_ns() const {
    uint64_t due = UINT64_MAX;
    for (const dialing &one : dials_)
        if (one.wanted && one.connection == 0) due = std::min(due, one.again_ns);
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
            return took(event);
        case MOORAGE_WIRE_SENT:
            if (const auto at = lent_.find(event.user); at != lent_.end()) {
                if (memory_.size() < memory_max) memory_.push_back(std::move(at->second.bytes));
                lent_.erase(at);
            }
            return;
        case MOORAGE_WIRE_WRITABLE:
            if (link *const one = find(event.connection)) {
                flush(*one);
                read_on(*one);
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
    link *one = find(event.connection);
    if (!one) {
        auto made = std::make_unique<link>();
        made->connection = event.connection;
        made->channel = event.channel;
        one = links_.emplace(event.connection, std::move(made)).first->second.get();
        ++figures_.accepts;
    }
    one->stands = link::stand::greeting;
    one->since_ns = steady_ns();
    greetings_.push_back(one->connection);
    one->address = event.plugin_address ? event.plugin_address : "";
    one->secure = (event.flags & MOORAGE_WIRE_SECURE) != 0;
    one->identity = event.plugin_identity ? event.plugin_identity : "";
    if (one->dialed) say_hello(*one, message_kind::hello);
}

void links::say_hello(link &to, message_kind kind) {
    message_bytes written = take_memory();
    write(written,
          greeting{feature_weights, plan_.cluster, plan_.model, plan_.plan, plan_.sizes,
                   own_.server < plan_.servers.size() ? plan_.servers[own_.server].name : "",
                   plan_.model_name, own_.software});
    send(to, std::move(written), kind, 0);
}

void links::took(const moorage_wire_event &event) {
    link *const from = find(event.connection);
    if (!from) return wire_.release(event.message);
    from->unread.push_back(event);
    read_on(*from);
}

// Unread messages follow when the other side has taken its answers. The wire reports that, because
// it was full.
void links::read_on(link &from) {
    const auto waits = [&] {
        return !from.dialed && from.stands == link::stand::ready &&
               from.waiting_bytes > waiting_bytes_max;
    };
    while (!from.unread.empty() && !waits()) {
        const moorage_wire_event next = from.unread.front();
        from.unread.pop_front();
        if (from.stands == link::stand::closing || !take(from, next)) wire_.release(next.message);
    }
}

// Whether somebody keeps the message.
bool links::take(link &from, const moorage_wire_event &event) {
    ++figures_.messages_in;
    figures_.bytes_in += event.bytes;
    from.received_bytes += event.bytes;
    from.heard_ns = steady_ns();
    frame of;
    const std::span bytes(static_cast<const std::byte *>(event.plugin_data),
                          static_cast<size_t>(event.bytes));
    if (const objection bad = read_frame(bytes, of); bad.why != refusal_reason::none) {
        refuse(from, bad.why, bad.text);
        return false;
    }
    if (from.stands == link::stand::greeting) {
        greeted(from, of);
        return false;
    }
    if (of.header.incarnation != from.incarnation || of.header.sender != from.server) {
        refuse(from, refusal_reason::incarnation, "it is not who it was when it greeted");
        return false;
    }
    if (const objection bad = body_of(of); bad.why != refusal_reason::none) {
        refuse(from, bad.why, bad.text);
        return false;
    }
    from.epoch = std::max(from.epoch, of.header.epoch);
    switch (of.header.kind) {
        case message_kind::ping:
            answer_ping(from, of);
            return false;
        case message_kind::goodbye:
            from.draining = true;
            return events_.arrived(from, of, event.message);
        case message_kind::hello:
        case message_kind::welcome:
            refuse(from, refusal_reason::unexpected, "it has greeted already");
            return false;
        default:
            return events_.arrived(from, of, event.message);
    }
}

void links::answer_ping(link &from, const frame &of) {
    const uint64_t now_ns = steady_ns();
    ping_view asked;
    if (const objection bad = read(of.body, asked); bad.why != refusal_reason::none)
        return refuse(from, bad.why, bad.text);
    message_bytes written = take_memory();
    write(written, pong_view{asked.sent_ns, now_ns, steady_ns(), draining_, 0});
    send(from, std::move(written), message_kind::pong, 0);
}

refusal_reason links::differs(const greeting &theirs, uint64_t epoch, std::string &text) const {
    const auto both = [&](const char *what, auto its, auto ours, const std::string &keys) {
        text = format(
            "{} {:x} is the caller's, {:x} this node's: {} differ; start both with the "
            "same files",
            what, its, ours, keys);
    };
    if (theirs.cluster != plan_.cluster)
        return both("cluster", theirs.cluster, plan_.cluster,
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
        return both("plan", theirs.plan, plan_.plan,
                    "[placement], or servers' memory and workloads in [cluster],"),
               refusal_reason::epoch;
    if (draining_) return text = "this node takes no more calls", refusal_reason::draining;
    return refusal_reason::none;
}

// Among those that have connected and greeted there is room for one more of its kind.
bool links::has_place(const greeting &theirs, uint32_t server, std::string &text) const {
    const bool is_guest = server >= plan_.servers.size();
    const size_t places = is_guest ? guest_places : server_places;
    size_t there = 0;
    for (const auto &[connection, one] : links_)
        there += !one->dialed && one->stands == link::stand::ready &&
                 (is_guest ? one->server >= plan_.servers.size() : one->server == server);
    if (there < places) return true;
    text = is_guest ? format(
                          "{} clients are connected, the most that a node takes beside the "
                          "servers of its plan; try again",
                          there)
                    : format(
                          "{} connections of {} are there, the most that a server has; end "
                          "what else calls itself so",
                          there, visible(theirs.server));
    return false;
}

// The first message of a connection: a greeting, or why there is none.
void links::greeted(link &from, const frame &of) {
    const auto wanted = from.dialed ? message_kind::welcome : message_kind::hello;
    if (from.dialed && of.header.kind == message_kind::refusal) return refused(from, of);
    greeting theirs;
    if (of.header.kind != wanted)
        return refuse(from, refusal_reason::unexpected, "a connection begins with a greeting");
    if (const objection bad = read(of.body, theirs); bad.why != refusal_reason::none)
        return refuse(from, bad.why, bad.text);
    if (theirs.sizes.rows_max == 0)
        return refuse(from, refusal_reason::size,
                      "the longest call that the other takes has 0 rows; it is to be 1 at least");
    std::string text;
    if (const refusal_reason why = differs(theirs, of.header.epoch, text);
        why != refusal_reason::none)
        return refuse(from, why, text);
    if (from.dialed && of.header.sender != from.server)
        return refuse(
            from, refusal_reason::cluster,
            format("server {} answers where server {} is meant to", of.header.sender, from.server));
    if (const std::string named = of.header.sender < plan_.servers.size()
                                      ? plan_.servers[of.header.sender].name
                                      : "no server";
        from.secure && of.header.sender != no_server && from.identity != named)
        return refuse(from, refusal_reason::cluster,
                      format("its certificate is {}'s, and it says that it is {}; give each server "
                             "a certificate with its name",
                             visible(from.identity), named));
    if (!from.dialed && !has_place(theirs, of.header.sender, text))
        return refuse(from, refusal_reason::busy, text);
    from.server = of.header.sender;
    from.incarnation = of.header.incarnation;
    from.epoch = of.header.epoch;
    from.rows_max = theirs.sizes.rows_max;
    from.stands = link::stand::ready;
    from.since_ns = steady_ns();
    if (from.dialed) {
        ++figures_.connects;
        dials_[from.dial].pause_ns = retry_ns_min;
        dials_[from.dial].trouble.clear();
        dials_[from.dial].passes = dials_[from.dial].refused = false;
    } else {
        say_hello(from, message_kind::welcome);
    }
    events_.ready(from);
}

void links::note_trouble(const link &dialed, refusal_reason why, const std::string &text) {
    dialing &which = dials_[dialed.dial];
    which.trouble = text;
    which.passes = why == refusal_reason::busy;
    which.refused =
        dialed.stands == link::stand::greeting && !which.passes && why != refusal_reason::draining;
    which.told = true;
}

void links::refuse(link &who, refusal_reason why, const std::string &text) {
    count(why);
    // A flood of them shall not fill the log.
    if (std::has_single_bit(figures_.refused[static_cast<size_t>(why)]))
        log_warning(format("node: {} refused ({}): {}",
                           who.address.empty() ? "a connection" : visible(who.address),
                           name_of(why), text));
    if (who.dialed) note_trouble(who, why, text);
    message_bytes written = take_memory();
    write(written, refusal_view{.why = why, .text = text});
    send(who, std::move(written), message_kind::refusal, 0);
    lose(who, false);
}

void links::refused(link &by, const frame &of) {
    refusal_view why;
    const bool said = read(of.body, why).why == refusal_reason::none;
    const std::string text = said ? visible(why.text) : "it refuses and does not say why";
    if (by.dialed) note_trouble(by, said ? why.why : refusal_reason::unexpected, text);
    log_info(format("node: {} says: {}", visible(by.address), text));
    lose(by, true);
}

link *links::ready_at(size_t dial) {
    link *const one = find(dials_[dial].connection);
    return one && one->stands == link::stand::ready && !one->draining ? one : nullptr;
}

link *links::to(uint32_t server) {
    return server < plan_.servers.size() ? ready_at(server) : nullptr;
}

link *links::bulk_to(uint32_t server) {
    if (server >= plan_.servers.size()) return nullptr;
    const size_t at = plan_.servers.size() + server;
    if (!dials_[at].wanted) {
        dials_[at].wanted = !plan_.servers[server].addresses.empty();
        if (!dials_[at].wanted) dials_[at].trouble = "it has no address";
        dial_due(steady_ns());
    }
    return ready_at(at);
}

void links::tell_epoch() {
    each([&](link &one) {
        if (one.stands != link::stand::ready) return;
        message_bytes written = take_memory();
        write(written, ping_view{steady_ns()});
        send(one, std::move(written), message_kind::ping, 0);
    });
}

link *links::find(uint64_t connection) {
    const auto at = links_.find(connection);
    return at == links_.end() ? nullptr : at->second.get();
}

message_bytes links::take_memory() {
    message_bytes made;
    if (!memory_.empty()) {
        made = std::move(memory_.back());
        memory_.pop_back();
    }
    begin_frame(made);
    return made;
}

bool links::send(link &to, message_bytes &&written, message_kind kind, uint64_t id,
                 uint64_t request) {
    if (to.stands == link::stand::closing) return false;
    end_frame(written, {.kind = kind,
                        .sender = own_.server,
                        .incarnation = own_.incarnation,
                        .epoch = plan_.epoch,
                        .id = id,
                        .request = request});
    ++figures_.messages_out;
    figures_.bytes_out += written.size();
    to.sent_bytes += written.size();
    if (to.waiting.empty()) return give(to, std::move(written));
    if (to.waiting.size() >= waiting_messages_max) {
        lose(to, true);
        return false;
    }
    to.waiting_bytes += written.size();
    to.waiting.push_back(std::move(written));
    return true;
}

bool links::give(link &to, message_bytes &&whole) {
    const uint64_t user = next_user_++;
    const moorage_wire_part part{whole.data(), whole.size(), 0};
    switch (wire_.send(to.connection, {&part, 1}, user)) {
        case MOORAGE_WIRE_DONE:
            if (memory_.size() < memory_max) memory_.push_back(std::move(whole));
            return true;
        case MOORAGE_WIRE_TAKEN:
            lent_.emplace(user, lent_message{to.connection, std::move(whole)});
            return true;
        case MOORAGE_WIRE_FULL:
            to.waiting_bytes += whole.size();
            to.waiting.push_front(std::move(whole));
            return true;
        default:
            return false;
    }
}

void links::flush(link &to) {
    while (!to.waiting.empty()) {
        message_bytes next = std::move(to.waiting.front());
        to.waiting.pop_front();
        const size_t before = to.waiting.size();
        to.waiting_bytes -= next.size();
        if (!give(to, std::move(next)) || to.waiting.size() > before) return;
    }
}

void links::drain() {
    draining_ = true;
    each([&](link &one) {
        if (one.stands != link::stand::ready) return;
        message_bytes written = take_memory();
        write(written, refusal_view{.why = refusal_reason::draining, .text = "the node ends"});
        send(one, std::move(written), message_kind::goodbye, 0);
    });
}

bool links::idle() const {
    return lent_.empty() &&
           std::ranges::all_of(links_, [](const auto &one) { return one.second->waiting.empty(); });
}

// Its CLOSED comes later.
void links::lose(link &who, bool at_once) {
    if (who.stands == link::stand::closing) return;
    const bool known = who.stands == link::stand::ready;
    who.stands = link::stand::closing;
    wire_.close(who.connection, at_once);
    if (known) events_.gone(who);
}

void links::closed(const moorage_wire_event &event) {
    const auto at = links_.find(event.connection);
    if (at == links_.end()) return;
    const std::unique_ptr<link> one = std::move(at->second);
    links_.erase(at);
    for (const moorage_wire_event &never : one->unread) wire_.release(never.message);
    std::erase_if(lent_,
                  [&](const auto &lent) { return lent.second.connection == one->connection; });
    if (one->dialed) {
        dialing &of = dials_[one->dial];
        of.connection = 0;
        // Between half of the pause and all of it. So nodes that lost the same node do not come
        // back in step.
        of.again_ns = steady_ns() + of.pause_ns / 2 + chance_.below(of.pause_ns / 2 + 1);
        if (!of.told) {
            of.passes = passes(event.reason);
            of.refused =
                event.reason == MOORAGE_WIRE_STRANGER || event.reason == MOORAGE_WIRE_MALFORMED;
            if (event.plugin_text) of.trouble = visible(event.plugin_text);
        }
        of.pause_ns = std::min(2 * of.pause_ns, of.passes ? retry_ns_busy : retry_ns_max);
    }
    if (one->stands != link::stand::ready) return;
    ++figures_.losses;
    one->stands = link::stand::closing;
    events_.gone(*one);
}

}  // namespace moorage::core

// peer_node.cpp - hands what comes to whom it is for.
#include "tools/node/peer_node.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"

namespace moorage::core {

peer_node::peer_node(const node_parts &parts)
    : plan_(*parts.plan),
      identity_(parts.identity),
      model_(*parts.loaded_model),
      board_(parts.board),
      experts_(*parts.loaded_model, parts.expert_bytes),
      links_(*parts.message_wire, plan_, identity_, *this),
      holder_(*parts.loaded_model, *parts.pool, plan_, experts_, links_, spans_),
      debts_(plan_.servers.size(), migration_debt(parts.moving.delay_max)),
      mover_(links_, plan_, experts_, identity_.server, parts.moving, debts_),
      behind_ns_(parts.behind_ns) {
    take_held();
}

void peer_node::turn(uint64_t wait_ns) {
    follow();
    mover_.turn(holder_.pending());
    if (!held_back_.empty()) give_held_back();
    if (wait_ns != 0) {
        const uint64_t now_ns = steady_ns();
        uint64_t due_ns = mover_.due_ns();
        for (const held_range &held : held_back_) due_ns = std::min(due_ns, held.until_ns);
        wait_ns = std::min(wait_ns, due_ns > now_ns ? due_ns - now_ns : 0);
    }
    links_.turn(holder_.pending() ? 0 : wait_ns);
    if (holder_.pending()) holder_.compute();
    if (!leaving_.empty()) forget_left();
}

void peer_node::follow() {
    if (!board_) return;
    if (const uint64_t version = board_->version(); version != version_) {
        version_ = version;
        adopt(board_->plan());
    }
    report_state();
}

// The copies that the plan gives this node and that nobody brings are read in its directory.
void peer_node::take_held() {
    if (identity_.server >= plan_.servers.size()) return;
    for (uint32_t page = 0; page < plan_.pages(); ++page)
        if (plan_.holds(identity_.server, page) && !experts_.has(page)) experts_.take_own(page);
}

void peer_node::adopt(const plan_record &next) {
    if (next.epoch <= plan_.epoch || next.holders.size() != plan_.pages()) return;
    plan_.epoch = next.epoch;
    set_holders(plan_, next.holders);
    if (!beside_its_node_)
        mover_.set_wanted(next.coming);  // what comes to its server comes to its node
    take_held();
    std::erase_if(leaving_, [&](const leaving_page &leaving) {
        return plan_.holds(identity_.server, leaving.page);
    });
    for (uint32_t page = 0; page < plan_.pages(); ++page)
        if (experts_.has(page) && !plan_.holds(identity_.server, page) &&
            std::ranges::find(mover_.arrived(), page) == mover_.arrived().end() &&
            std::ranges::find(leaving_, page, &leaving_page::page) == leaving_.end())
            leaving_.push_back({page, next.epoch, steady_ns()});
    links_.tell_epoch();
}

bool peer_node::is_behind(const link &peer, uint64_t epoch) const {
    return !peer.dialed && peer.state == link::state_kind::ready &&
           peer.channel == MOORAGE_WIRE_CALLS && peer.epoch < epoch;
}

std::string peer_node::describe_peer(const link &peer) const {
    return format("{} at {}",
                  peer.server < plan_.servers.size() ? plan_.servers[peer.server].name
                                                     : std::string("a caller that is no server"),
                  peer.address.empty() ? std::string("an unknown address") : visible(peer.address));
}

std::vector<std::string> peer_node::waited_for() {
    uint64_t epoch = 0;
    for (const leaving_page &leaving : leaving_) epoch = std::max(epoch, leaving.epoch);
    std::vector<std::string> names;
    links_.for_each([&](const link &peer) {
        if (is_behind(peer, epoch)) names.push_back(describe_peer(peer));
    });
    return names;
}

// One silent caller must not keep every later plan from its room. It is told why and its connection
// ends, so that later messages from it are not taken for calls.
void peer_node::leave_behind() {
    constexpr uint64_t parts = 5;  // of the time that it has, after how much it is named
    const uint64_t now_ns = steady_ns();
    uint64_t slow = 0, late = 0;  // epochs that are due
    for (const leaving_page &leaving : leaving_) {
        if (now_ns - leaving.since_ns > behind_ns_ / parts) slow = std::max(slow, leaving.epoch);
        if (now_ns - leaving.since_ns > behind_ns_) late = std::max(late, leaving.epoch);
    }
    links_.for_each([&](link &peer) {
        if (is_behind(peer, late))
            return links_.refuse(peer, refusal_reason::epoch,
                                 format("epoch {} is the latest that the caller said, {} this "
                                        "node's for more than {} ms; connect again, by the newer "
                                        "plan",
                                        peer.epoch, late, behind_ns_ / 1'000'000));
        if (!is_behind(peer, slow) || peer.named_epoch >= slow) return;
        peer.named_epoch = slow;
        log_warning(
            format("node: {} experts that went elsewhere stay in memory: {} has not said "
                   "epoch {} yet; its connection ends if it does not",
                   leaving_.size(), describe_peer(peer), slow));
    });
}

// A caller that has confirmed a later epoch uses that one in its calls from then on. Its calls by
// an earlier epoch came before, on the same connection.
void peer_node::forget_left() {
    leave_behind();
    uint64_t epoch = plan_.epoch;
    links_.for_each([&](const link &peer) {
        if (is_behind(peer, epoch)) epoch = peer.epoch;
    });
    std::erase_if(leaving_, [&](const leaving_page &leaving) {
        if (leaving.epoch > epoch || holder_.needs(leaving.page)) return false;
        experts_.forget(leaving.page);
        return true;
    });
}

bool peer_node::report_demand(std::span<const uint64_t> page_counts, uint64_t window_ms) {
    if (!board_ || identity_.server == no_server) return false;
    const uint32_t leader = board_->leader();
    if (leader == identity_.server && !beside_its_node_) {
        board_->add_demand(identity_.server, page_counts);
        return true;
    }
    link *const target = links_.call_link(leader);
    if (!target) return false;
    uint64_t rows = 0;
    for (const uint64_t count : page_counts) rows += count;
    message_bytes written = links_.take_memory();
    write(written, statistics_view{0, rows, window_ms, page_counts});
    return links_.send(*target, std::move(written), message_kind::statistics, 0);
}

void peer_node::report_state() {
    constexpr uint64_t say_ns = 20'000'000, measure_ns = 2'000'000'000;
    const uint64_t now_ns = steady_ns();
    if (now_ns - said_ns_ < say_ns) return;
    said_ns_ = now_ns;
    member_record record;
    record.incarnation = identity_.incarnation;
    record.epoch = plan_.epoch;
    record.arrived.assign(mover_.arrived().begin(), mover_.arrived().end());
    record.leaving = leaving_.size();
    if (now_ns - measured_ns_ > measure_ns) {
        measured_ns_ = now_ns;
        const holder_figures &served = holder_.figures();
        if (served.experts != 0) measured_.pair_ns = served.computed_ns / served.experts;
        if (const mover_figures &moved = mover_.figures(); moved.busy_ns != 0)
            measured_.bytes_per_s = static_cast<uint64_t>(static_cast<double>(moved.bytes) * 1e9 /
                                                          static_cast<double>(moved.busy_ns));
        measured_.round_trip_ns.assign(plan_.servers.size(), 0);
        for (uint32_t server = 0; heartbeats_ && server < plan_.servers.size(); ++server)
            measured_.round_trip_ns[server] = heartbeats_->round_trip_ns(server);
    }
    record.pair_ns = measured_.pair_ns;
    record.bytes_per_s = measured_.bytes_per_s;
    record.round_trip_ns = measured_.round_trip_ns;
    board_->report(std::move(record));
}

bool peer_node::is_refused_by(uint32_t server, std::string *reason) const {
    if (links_.is_refused_by(server)) {
        if (reason) *reason = links_.trouble(server);
        return true;
    }
    if (!heartbeats_ || !heartbeats_->is_refused_by(server)) return false;
    if (reason) *reason = heartbeats_->trouble(server);
    return true;
}

std::string peer_node::refused_by_all() const {
    std::string first;
    for (uint32_t server = 0; server < plan_.servers.size(); ++server) {
        const node_server &peer = plan_.servers[server];
        if (server == identity_.server || peer.addresses.empty() || plan_.held_by(server) == 0)
            continue;
        std::string reason;
        if (!is_refused_by(server, &reason)) return "";
        if (first.empty()) first = format("{} says: {}", peer.name, reason);
    }
    return first;
}

uint64_t peer_node::drain_end_ns() {
    if (drain_end_ns_ != 0) return drain_end_ns_;
    links_.drain();
    return drain_end_ns_ = steady_ns() + drain_ns;
}

void peer_node::serve(const std::function<bool()> &should_stop) {
    constexpr uint64_t look_ns = 100'000'000;
    while (!should_stop()) turn(look_ns);
    const uint64_t end_ns = drain_end_ns();
    while ((holder_.pending() || !links_.idle()) && steady_ns() < end_ns) turn(look_ns / 10);
    links_.for_each([&](link &peer) {
        if (peer.state == link::state_kind::ready) links_.close(peer);
    });
    // For the wire to say so.
    for (int i = 0; i < 10 && links_.count_open() != 0; ++i) links_.turn(look_ns / 10);
}

bool peer_node::arrived(link &sender, const frame &message, uint64_t wire_message) {
    switch (message.header.kind) {
        case message_kind::refusal:
            links_.handle_refusal(sender, message);
            return false;
        case message_kind::pong:
            return false;
        case message_kind::goodbye:
            if (sender.dialed && sender.channel == MOORAGE_WIRE_CALLS && answers_)
                answers_->gone(sender.server);
            return false;
        default:
            break;
    }
    if (message.header.kind == message_kind::statistics) {
        statistics_view statistics;
        if (const objection problem = read(message.body, plan_.sizes, statistics);
            problem.reason != refusal_reason::none)
            links_.refuse(sender, problem.reason, problem.text);
        else if (board_ && sender.server < plan_.servers.size())
            board_->add_demand(sender.server, statistics.activations);
        return false;
    }
    if (!sender.dialed) return handle_caller_message(sender, message, wire_message);
    if (sender.channel == MOORAGE_WIRE_BULK && (message.header.kind == message_kind::weights ||
                                                message.header.kind == message_kind::failed)) {
        mover_.answered(sender, message);
        return false;
    }
    if (message.header.kind != message_kind::reply && message.header.kind != message_kind::failed)
        links_.refuse(sender, refusal_reason::unexpected, "it was not asked for that");
    else if (answers_)
        answers_->answered(sender, message);
    return false;
}

bool peer_node::handle_caller_message(link &sender, const frame &message, uint64_t wire_message) {
    if (desk_ && message.header.kind == message_kind::cancel)
        desk_->cancel(sender, message.header.id);
    if (message.header.kind == message_kind::weights_wanted)
        return give_range(sender, message), false;
    if (message.header.kind != message_kind::ask)
        return holder_.arrived(sender, message, wire_message);
    if (desk_) {
        desk_->arrived(sender, message);
    } else {
        message_bytes written = links_.take_memory();
        write(written, refusal_view{.reason = refusal_reason::unexpected,
                                    .text = "this node takes no requests; it is not a home"});
        links_.send(sender, std::move(written), message_kind::failed, message.header.id);
    }
    return false;
}

// Gives the range at once, or when the other node no longer delays this node's own calls to it too
// much. The other node does not wait for ever. If it asks for another range, it gets the one before
// first.
void peer_node::give_range(link &sender, const frame &message) {
    constexpr uint64_t held_ns_max = 500'000'000;
    weights_range range;
    if (const objection problem = read(message.body, plan_.sizes, range);
        problem.reason != refusal_reason::none)
        return links_.refuse(sender, problem.reason, problem.text);
    const auto same = [&](const held_range &held) { return held.connection == sender.connection; };
    if (std::ranges::any_of(held_back_, same)) give_held_back(sender.connection);
    const uint64_t now_ns = steady_ns();
    const uint64_t allowed_ns =
        sender.server < debts_.size() ? debts_[sender.server].next_range_ns() : 0;
    if (allowed_ns <= now_ns) {
        if (sender.server < debts_.size()) debts_[sender.server].note_given_range(now_ns);
        holder_.arrived(sender, message, 0);
        return;
    }
    held_back_.push_back({sender.connection,
                          message.header.id,
                          std::min(allowed_ns, now_ns + held_ns_max),
                          {message.body.begin(), message.body.end()}});
}

void peer_node::give_held_back(uint64_t connection) {
    const uint64_t now_ns = steady_ns();
    std::erase_if(held_back_, [&](const held_range &held) {
        if (held.connection != connection && now_ns < held.until_ns) return false;
        link *const target = links_.find(held.connection);
        if (!target) return true;
        if (target->server < debts_.size()) debts_[target->server].note_given_range(now_ns);
        frame again;
        again.header.kind = message_kind::weights_wanted;
        again.header.id = held.id;
        again.body = held.body;
        holder_.arrived(*target, again, 0);
        return true;
    });
}

void peer_node::gone(link &peer) {
    if (!peer.dialed && desk_) desk_->gone(peer);
    if (!peer.dialed) return holder_.gone(peer);
    if (peer.channel == MOORAGE_WIRE_BULK) return mover_.gone(peer);
    if (answers_) answers_->gone(peer.server);
}

}  // namespace moorage::core

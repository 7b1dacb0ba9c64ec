// peer_node.cpp - hands what comes to whom it is for.
#include "core/node/peer_node.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"

namespace moorage::core {

peer_node::peer_node(const node_parts &of)
    : plan_(*of.plan),
      own_(of.own),
      model_(*of.of),
      board_(of.board),
      experts_(*of.of, of.expert_bytes),
      links_(*of.over, plan_, own_, *this),
      holder_(*of.of, *of.pool, plan_, experts_, links_, spans_),
      debts_(plan_.servers.size(), migration_debt(of.moving.delay_max)),
      mover_(links_, plan_, experts_, own_.server, of.moving, debts_),
      behind_ns_(of.behind_ns) {
    take_held();
}

void peer_node::turn(uint64_t wait_ns) {
    follow();
    mover_.turn(holder_.pending());
    if (!held_back_.empty()) give_held_back();
    if (wait_ns != 0) {
        const uint64_t now_ns = steady_ns();
        uint64_t due_ns = mover_.due_ns();
        for (const range_held_back &one : held_back_) due_ns = std::min(due_ns, one.until_ns);
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
    say();
}

// The copies that the plan gives this node and that nobody brings are read in its directory.
void peer_node::take_held() {
    if (own_.server >= plan_.servers.size()) return;
    for (uint32_t page = 0; page < plan_.pages(); ++page)
        if (plan_.holds(own_.server, page) && !experts_.has(page)) experts_.take_own(page);
}

void peer_node::adopt(const plan_record &next) {
    if (next.epoch <= plan_.epoch || next.holders.size() != plan_.pages()) return;
    plan_.epoch = next.epoch;
    set_holders(plan_, next.holders);
    if (!own_too_) mover_.want(next.coming);  // what comes to its server comes to its node
    take_held();
    std::erase_if(leaving_,
                  [&](const page_leaving &one) { return plan_.holds(own_.server, one.page); });
    for (uint32_t page = 0; page < plan_.pages(); ++page)
        if (experts_.has(page) && !plan_.holds(own_.server, page) &&
            std::ranges::find(mover_.arrived(), page) == mover_.arrived().end() &&
            std::ranges::find(leaving_, page, &page_leaving::page) == leaving_.end())
            leaving_.push_back({page, next.epoch, steady_ns()});
    links_.tell_epoch();
}

bool peer_node::is_behind(const link &one, uint64_t epoch) const {
    return !one.dialed && one.stands == link::stand::ready && one.channel == MOORAGE_WIRE_CALLS &&
           one.epoch < epoch;
}

std::string peer_node::who_is(const link &one) const {
    return format("{} at {}",
                  one.server < plan_.servers.size() ? plan_.servers[one.server].name
                                                    : std::string("a caller that is no server"),
                  one.address.empty() ? std::string("an unknown address") : visible(one.address));
}

std::vector<std::string> peer_node::waited_for() {
    uint64_t epoch = 0;
    for (const page_leaving &one : leaving_) epoch = std::max(epoch, one.epoch);
    std::vector<std::string> made;
    links_.each([&](const link &one) {
        if (is_behind(one, epoch)) made.push_back(who_is(one));
    });
    return made;
}

// One silent caller must not keep every later plan from its room. It is told why and its connection
// ends, so that later messages from it are not taken for calls.
void peer_node::leave_behind() {
    constexpr uint64_t parts = 5;  // of the time that it has, after how much it is named
    const uint64_t now_ns = steady_ns();
    uint64_t slow = 0, late = 0;  // epochs that are due
    for (const page_leaving &one : leaving_) {
        if (now_ns - one.since_ns > behind_ns_ / parts) slow = std::max(slow, one.epoch);
        if (now_ns - one.since_ns > behind_ns_) late = std::max(late, one.epoch);
    }
    links_.each([&](link &one) {
        if (is_behind(one, late))
            return links_.refuse(one, refusal_reason::epoch,
                                 format("epoch {} is the latest that the caller said, {} this "
                                        "node's for more than {} ms; connect again, by the newer "
                                        "plan",
                                        one.epoch, late, behind_ns_ / 1'000'000));
        if (!is_behind(one, slow) || one.named_epoch >= slow) return;
        one.named_epoch = slow;
        log_warning(
            format("node: {} experts that went elsewhere stay in memory: {} has not said "
                   "epoch {} yet; its connection ends if it does not",
                   leaving_.size(), who_is(one), slow));
    });
}

// A caller that has confirmed a later epoch uses that one in its calls from then on. Its calls by
// an earlier epoch came before, on the same connection.
void peer_node::forget_left() {
    leave_behind();
    uint64_t epoch = plan_.epoch;
    links_.each([&](const link &one) {
        if (is_behind(one, epoch)) epoch = one.epoch;
    });
    std::erase_if(leaving_, [&](const page_leaving &one) {
        if (one.epoch > epoch || holder_.needs(one.page)) return false;
        experts_.forget(one.page);
        return true;
    });
}

bool peer_node::tell_demand(std::span<const uint64_t> of_pages, uint64_t window_ms) {
    if (!board_ || own_.server == no_server) return false;
    const uint32_t leader = board_->leader();
    if (leader == own_.server && !own_too_) {
        board_->add_demand(own_.server, of_pages);
        return true;
    }
    link *const to = links_.to(leader);
    if (!to) return false;
    uint64_t rows = 0;
    for (const uint64_t one : of_pages) rows += one;
    message_bytes written = links_.take_memory();
    write(written, statistics_view{0, rows, window_ms, of_pages});
    return links_.send(*to, std::move(written), message_kind::statistics, 0);
}

void peer_node::say() {
    constexpr uint64_t say_ns = 20'000'000, measure_ns = 2'000'000'000;
    const uint64_t now_ns = steady_ns();
    if (now_ns - said_ns_ < say_ns) return;
    said_ns_ = now_ns;
    member_record own;
    own.incarnation = own_.incarnation;
    own.epoch = plan_.epoch;
    own.arrived.assign(mover_.arrived().begin(), mover_.arrived().end());
    own.leaving = leaving_.size();
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
    own.pair_ns = measured_.pair_ns;
    own.bytes_per_s = measured_.bytes_per_s;
    own.round_trip_ns = measured_.round_trip_ns;
    board_->say(std::move(own));
}

bool peer_node::refused(uint32_t server, std::string *why) const {
    if (links_.refused(server)) {
        if (why) *why = links_.trouble(server);
        return true;
    }
    if (!heartbeats_ || !heartbeats_->refused(server)) return false;
    if (why) *why = heartbeats_->trouble(server);
    return true;
}

std::string peer_node::refused_by_all() const {
    std::string first;
    for (uint32_t server = 0; server < plan_.servers.size(); ++server) {
        const node_server &other = plan_.servers[server];
        if (server == own_.server || other.addresses.empty() || plan_.held_by(server) == 0)
            continue;
        std::string why;
        if (!refused(server, &why)) return "";
        if (first.empty()) first = format("{} says: {}", other.name, why);
    }
    return first;
}

uint64_t peer_node::drain_end_ns() {
    if (drain_end_ns_ != 0) return drain_end_ns_;
    links_.drain();
    return drain_end_ns_ = steady_ns() + drain_ns;
}

void peer_node::serve(const std::function<bool()> &over) {
    constexpr uint64_t look_ns = 100'000'000;
    while (!over()) turn(look_ns);
    const uint64_t end_ns = drain_end_ns();
    while ((holder_.pending() || !links_.idle()) && steady_ns() < end_ns) turn(look_ns / 10);
    links_.each([&](link &one) {
        if (one.stands == link::stand::ready) links_.close(one);
    });
    // For the wire to say so.
    for (int i = 0; i < 10 && links_.count_open() != 0; ++i) links_.turn(look_ns / 10);
}

bool peer_node::arrived(link &from, const frame &of, uint64_t lent) {
    switch (of.header.kind) {
        case message_kind::refusal:
            links_.refused(from, of);
            return false;
        case message_kind::pong:
            return false;
        case message_kind::goodbye:
            if (from.dialed && from.channel == MOORAGE_WIRE_CALLS && answers_)
                answers_->gone(from.server);
            return false;
        default:
            break;
    }
    if (of.header.kind == message_kind::statistics) {
        statistics_view asked;
        if (const objection bad = read(of.body, plan_.sizes, asked);
            bad.why != refusal_reason::none)
            links_.refuse(from, bad.why, bad.text);
        else if (board_ && from.server < plan_.servers.size())
            board_->add_demand(from.server, asked.activations);
        return false;
    }
    if (!from.dialed) return asked(from, of, lent);
    if (from.channel == MOORAGE_WIRE_BULK &&
        (of.header.kind == message_kind::weights || of.header.kind == message_kind::failed)) {
        mover_.answered(from, of);
        return false;
    }
    if (of.header.kind != message_kind::reply && of.header.kind != message_kind::failed)
        links_.refuse(from, refusal_reason::unexpected, "it was not asked for that");
    else if (answers_)
        answers_->answered(from, of);
    return false;
}

bool peer_node::asked(link &from, const frame &of, uint64_t lent) {
    if (desk_ && of.header.kind == message_kind::cancel) desk_->cancel(from, of.header.id);
    if (of.header.kind == message_kind::weights_wanted) return give_range(from, of), false;
    if (of.header.kind != message_kind::ask) return holder_.arrived(from, of, lent);
    if (desk_) {
        desk_->arrived(from, of);
    } else {
        message_bytes written = links_.take_memory();
        write(written, refusal_view{.why = refusal_reason::unexpected,
                                    .text = "this node takes no requests; it is not a home"});
        links_.send(from, std::move(written), message_kind::failed, of.header.id);
    }
    return false;
}

// Gives the range at once, or when the other node no longer delays this node's own calls to it too
// much. The other node does not wait for ever. If it asks for another range, it gets the one before
// first.
void peer_node::give_range(link &from, const frame &of) {
    constexpr uint64_t held_ns_max = 500'000'000;
    weights_range range;
    if (const objection bad = read(of.body, plan_.sizes, range); bad.why != refusal_reason::none)
        return links_.refuse(from, bad.why, bad.text);
    const auto same = [&](const range_held_back &one) { return one.connection == from.connection; };
    if (std::ranges::any_of(held_back_, same)) give_held_back(from.connection);
    const uint64_t now_ns = steady_ns();
    const uint64_t from_ns = from.server < debts_.size() ? debts_[from.server].from_ns() : 0;
    if (from_ns <= now_ns) {
        if (from.server < debts_.size()) debts_[from.server].gives(now_ns);
        holder_.arrived(from, of, 0);
        return;
    }
    held_back_.push_back({from.connection,
                          of.header.id,
                          std::min(from_ns, now_ns + held_ns_max),
                          {of.body.begin(), of.body.end()}});
}

void peer_node::give_held_back(uint64_t connection) {
    const uint64_t now_ns = steady_ns();
    std::erase_if(held_back_, [&](const range_held_back &one) {
        if (one.connection != connection && now_ns < one.until_ns) return false;
        link *const to = links_.find(one.connection);
        if (!to) return true;
        if (to->server < debts_.size()) debts_[to->server].gives(now_ns);
        frame again;
        again.header.kind = message_kind::weights_wanted;
        again.header.id = one.id;
        again.body = one.body;
        holder_.arrived(*to, again, 0);
        return true;
    });
}

void peer_node::gone(link &which) {
    if (!which.dialed && desk_) desk_->gone(which);
    if (!which.dialed) return holder_.gone(which);
    if (which.channel == MOORAGE_WIRE_BULK) return mover_.gone(which);
    if (answers_) answers_->gone(which.server);
}

}  // namespace moorage::core

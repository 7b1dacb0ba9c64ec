// mover.cpp - asks, checks, asks somebody else.
#include "core/node/mover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t source_look_ns =
    20'000'000;  // between looks for a source that is being connected

}  // namespace

mover::mover(links &through, const node_plan &plan, expert_store &store, uint32_t server,
             const mover_options &options, std::span<migration_debt> debts)
    : links_(through),
      plan_(plan),
      store_(store),
      server_(server),
      options_(options),
      debts_(debts) {}

void mover::want(std::span<const moving_copy> all) {
    wanted_.clear();
    arrived_.clear();
    for (const moving_copy &one : all) {
        if (one.to != server_) continue;
        if (store_.has(one.page))
            arrived_.push_back(one.page);
        else
            wanted_.push_back(one);
    }
    if (!under_way_) return;
    const auto still = std::ranges::find(wanted_, under_way_->page, &moving_copy::page);
    if (still == wanted_.end()) {
        range_over(steady_ns());
        store_.abandon(under_way_->page);
        under_way_.reset();
    } else {
        std::rotate(wanted_.begin(), still, still + 1);
    }
}

uint64_t mover::due_ns() const {
    if (wanted_.empty()) return UINT64_MAX;
    if (under_way_ && under_way_->id != 0) return under_way_->asked_ns + options_.answer_ns;
    if (held_ns_ != 0) return std::max(next_ns_, debts_[under_way_->source].from_ns());
    return std::max(next_ns_, steady_ns() + (under_way_ ? source_look_ns : 0));
}

// A line a second while experts come, and one in the end.
void mover::tell(uint64_t now_ns) {
    constexpr uint64_t tell_ns = 1'000'000'000;
    if (told_.begun_ns == 0) {
        if (!wanted_.empty()) told_ = {now_ns, now_ns, figures_.bytes, figures_.copies};
        return;
    }
    if (!wanted_.empty() && now_ns - told_.said_ns < tell_ns) return;
    told_.said_ns = now_ns;
    const uint64_t copies = figures_.copies - told_.copies;
    const double took_s = static_cast<double>(now_ns - told_.begun_ns) / 1e9;
    log_info(format(
        "node: {} experts have come, {} from others in {:.1f} s; {}", copies,
        human_bytes(static_cast<double>(figures_.bytes - told_.bytes)), took_s,
        wanted_.empty() ? std::string("all are here") : format("{} to come", wanted_.size())));
    if (wanted_.empty()) told_.begun_ns = 0;
}

void mover::turn(bool demand) {
    const uint64_t now_ns = steady_ns();
    tell(now_ns);
    if (wanted_.empty()) return;
    if (under_way_ && under_way_->id != 0) {
        if (now_ns - under_way_->asked_ns > options_.answer_ns) leave_source("stays silent");
        return;
    }
    if (demand || now_ns < next_ns_) return;
    if (!under_way_) begin();
    if (!under_way_) return;
    if (under_way_->source == no_server && !choose_source()) {
        if (options_.own_directory) finish(/*own=*/true);
        return;
    }
    if (held_back(now_ns)) return;
    link *const from = links_.bulk_to(under_way_->source);
    if (from) return ask(*from);
    // It is being connected, or does not answer.
    if (!links_.bulk_trouble(under_way_->source).empty()) leave_source("cannot be reached");
}

// While calls to the source and its own to this node were delayed by too much.
bool mover::held_back(uint64_t now_ns) {
    const bool held = now_ns < debts_[under_way_->source].from_ns();
    if (held && held_ns_ == 0) held_ns_ = now_ns;
    if (!held && held_ns_ != 0) figures_.held_ns += now_ns - std::exchange(held_ns_, 0);
    return held;
}

void mover::range_over(uint64_t now_ns) {
    held_ns_ = 0;
    if (under_way_ && under_way_->source != no_server) debts_[under_way_->source].ends(now_ns);
}

// Room is made by others' copies that go; until then it waits.
void mover::begin() {
    const moving_copy &first = wanted_.front();
    next_ns_ = std::max(next_ns_, steady_ns() + source_look_ns);
    if (!store_.fits(first.page)) return;
    const auto memory = store_.begin(first.page);
    if (!memory) return log_warning(format("node: {}", memory.failure().text));
    under_way_ = moving{};
    under_way_->page = first.page;
    under_way_->to = *memory;
    under_way_->source = first.from;
    next_ns_ = steady_ns();
}

bool mover::choose_source() {
    moving &of = *under_way_;
    for (const uint32_t server : plan_.holders_of(of.page))
        if (server != server_ && std::ranges::find(of.tried, server) == of.tried.end()) {
            of.source = server;
            return true;
        }
    return false;
}

void mover::ask(link &from) {
    moving &of = *under_way_;
    const uint64_t left = store_.image_bytes(of.page) - of.offset;
    const weights_range range{of.page / plan_.sizes.experts, of.page % plan_.sizes.experts,
                              of.offset, std::min(left, options_.range_bytes)};
    message_bytes written = links_.take_memory();
    write(written, range);
    of.id = next_id_++;
    of.connection = from.connection;
    of.asked_ns = steady_ns();
    debts_[of.source].begins(of.asked_ns);
    if (options_.bytes_per_s != 0)
        next_ns_ =
            std::max(next_ns_, of.asked_ns) + range.bytes * 1'000'000'000 / options_.bytes_per_s;
    if (!links_.send(from, std::move(written), message_kind::weights_wanted, of.id))
        leave_source("takes no requests");
}

void mover::leave_source(const char *why) {
    moving &of = *under_way_;
    range_over(steady_ns());
    ++figures_.failed;
    log_info(format("node: expert {} of layer {} is not had from {}, which {}",
                    of.page % plan_.sizes.experts, of.page / plan_.sizes.experts,
                    of.source < plan_.servers.size() ? plan_.servers[of.source].name : "nobody",
                    why));
    of.tried.push_back(of.source);
    of.source = no_server;
    of.id = 0;
    of.offset = 0;  // another one has the same bytes, but who lied may have given some
}

void mover::answered(link &from, const frame &of) {
    if (!under_way_ || under_way_->id == 0 || of.header.id != under_way_->id ||
        from.connection != under_way_->connection)
        return;  // nobody waits for it any more
    moving &own = *under_way_;
    weights_view got;
    if (of.header.kind != message_kind::weights) return leave_source("has not got it");
    if (const objection bad = read(of.body, plan_.sizes, got); bad.why != refusal_reason::none) {
        links_.count(bad.why);
        return leave_source("sends what cannot be read");
    }
    const uint64_t whole = store_.image_bytes(own.page);
    if (got.range.layer * plan_.sizes.experts + got.range.expert != own.page ||
        got.range.offset != own.offset || got.image_bytes != whole ||
        got.range.bytes > whole - own.offset) {
        links_.count(refusal_reason::shape);
        return leave_source("sends something else");
    }
    std::memcpy(own.to + own.offset, got.bytes.data(), got.bytes.size());
    own.offset += got.bytes.size();
    own.id = 0;
    ++figures_.ranges;
    figures_.bytes += got.bytes.size();
    const uint64_t now_ns = steady_ns(), took_ns = now_ns - own.asked_ns;
    figures_.busy_ns += took_ns;
    range_over(now_ns);
    if (options_.bytes_per_s == 0) next_ns_ = now_ns + 3 * took_ns;
    if (own.offset == whole) finish(/*own=*/false);
}

void mover::finish(bool own) {
    const uint32_t page = under_way_->page;
    if (own) {
        store_.abandon(page);
        store_.take_own(page);
        ++figures_.own;
    } else {
        store_.end(page);
    }
    ++figures_.copies;
    arrived_.push_back(page);
    under_way_.reset();
    wanted_.erase(wanted_.begin());
}

void mover::gone(const link &which) {
    if (under_way_ && under_way_->id != 0 && under_way_->connection == which.connection)
        leave_source("is gone");
}

}  // namespace moorage::core

// mover.cpp - asks, checks, asks somebody else.
#include "tools/node/mover.h"

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

mover::mover(links &connections, const node_plan &plan, expert_store &store, uint32_t server,
             const mover_options &options, std::span<migration_debt> debts)
    : links_(connections),
      plan_(plan),
      store_(store),
      server_(server),
      options_(options),
      debts_(debts) {}

void mover::set_wanted(std::span<const moving_copy> copies) {
    wanted_.clear();
    arrived_.clear();
    for (const moving_copy &copy : copies) {
        if (copy.target != server_) continue;
        if (store_.has(copy.page))
            arrived_.push_back(copy.page);
        else
            wanted_.push_back(copy);
    }
    if (!under_way_) return;
    const auto found = std::ranges::find(wanted_, under_way_->page, &moving_copy::page);
    if (found == wanted_.end()) {
        range_over(steady_ns());
        store_.abandon(under_way_->page);
        under_way_.reset();
    } else {
        std::rotate(wanted_.begin(), found, found + 1);
    }
}

uint64_t mover::due_ns() const {
    if (wanted_.empty()) return UINT64_MAX;
    if (under_way_ && under_way_->id != 0) return under_way_->asked_ns + options_.answer_ns;
    if (held_ns_ != 0) return std::max(next_ns_, debts_[under_way_->source].next_range_ns());
    return std::max(next_ns_, steady_ns() + (under_way_ ? source_look_ns : 0));
}

// A line a second while experts come, and one in the end.
void mover::log_progress(uint64_t now_ns) {
    constexpr uint64_t tell_ns = 1'000'000'000;
    if (progress_.begun_ns == 0) {
        if (!wanted_.empty()) progress_ = {now_ns, now_ns, figures_.bytes, figures_.copies};
        return;
    }
    if (!wanted_.empty() && now_ns - progress_.reported_ns < tell_ns) return;
    progress_.reported_ns = now_ns;
    const uint64_t copies = figures_.copies - progress_.copies;
    const double took_s = static_cast<double>(now_ns - progress_.begun_ns) / 1e9;
    log_info(format(
        "node: {} experts have come, {} from others in {:.1f} s; {}", copies,
        human_bytes(static_cast<double>(figures_.bytes - progress_.bytes)), took_s,
        wanted_.empty() ? std::string("all are here") : format("{} to come", wanted_.size())));
    if (wanted_.empty()) progress_.begun_ns = 0;
}

void mover::turn(bool demand) {
    const uint64_t now_ns = steady_ns();
    log_progress(now_ns);
    if (wanted_.empty()) return;
    if (under_way_ && under_way_->id != 0) {
        if (now_ns - under_way_->asked_ns > options_.answer_ns) leave_source("stays silent");
        return;
    }
    if (demand || now_ns < next_ns_) return;
    if (!under_way_) begin();
    if (!under_way_) return;
    if (under_way_->source == no_server && !choose_source()) {
        if (options_.own_directory) finish(/*from_own_directory=*/true);
        return;
    }
    if (update_held_back(now_ns)) return;
    link *const source = links_.bulk_link(under_way_->source);
    if (source) return ask(*source);
    // It is being connected, or does not answer.
    if (!links_.bulk_trouble(under_way_->source).empty()) leave_source("cannot be reached");
}

// While calls to the source and its own to this node were delayed by too much.
bool mover::update_held_back(uint64_t now_ns) {
    const bool held = now_ns < debts_[under_way_->source].next_range_ns();
    if (held && held_ns_ == 0) held_ns_ = now_ns;
    if (!held && held_ns_ != 0) figures_.held_ns += now_ns - std::exchange(held_ns_, 0);
    return held;
}

void mover::range_over(uint64_t now_ns) {
    held_ns_ = 0;
    if (under_way_ && under_way_->source != no_server) debts_[under_way_->source].end_range(now_ns);
}

// Room is made by others' copies that go; until then it waits.
void mover::begin() {
    const moving_copy &first = wanted_.front();
    next_ns_ = std::max(next_ns_, steady_ns() + source_look_ns);
    if (!store_.fits(first.page)) return;
    const auto memory = store_.begin(first.page);
    if (!memory) return log_warning(format("node: {}", memory.failure().text));
    under_way_ = incoming_copy{};
    under_way_->page = first.page;
    under_way_->target = *memory;
    under_way_->source = first.source;
    next_ns_ = steady_ns();
}

bool mover::choose_source() {
    incoming_copy &copy = *under_way_;
    for (const uint32_t server : plan_.holders_of(copy.page))
        if (server != server_ && std::ranges::find(copy.tried, server) == copy.tried.end()) {
            copy.source = server;
            return true;
        }
    return false;
}

void mover::ask(link &source) {
    incoming_copy &copy = *under_way_;
    const uint64_t left = store_.image_bytes(copy.page) - copy.offset;
    const weights_range range{copy.page / plan_.sizes.experts, copy.page % plan_.sizes.experts,
                              copy.offset, std::min(left, options_.range_bytes)};
    message_bytes written = links_.take_memory();
    write(written, range);
    copy.id = next_id_++;
    copy.connection = source.connection;
    copy.asked_ns = steady_ns();
    debts_[copy.source].begin_range(copy.asked_ns);
    if (options_.bytes_per_s != 0)
        next_ns_ =
            std::max(next_ns_, copy.asked_ns) + range.bytes * 1'000'000'000 / options_.bytes_per_s;
    if (!links_.send(source, std::move(written), message_kind::weights_wanted, copy.id))
        leave_source("takes no requests");
}

void mover::leave_source(const char *reason) {
    incoming_copy &copy = *under_way_;
    range_over(steady_ns());
    ++figures_.failed;
    log_info(format("node: expert {} of layer {} is not had from {}, which {}",
                    copy.page % plan_.sizes.experts, copy.page / plan_.sizes.experts,
                    copy.source < plan_.servers.size() ? plan_.servers[copy.source].name : "nobody",
                    reason));
    copy.tried.push_back(copy.source);
    copy.source = no_server;
    copy.id = 0;
    copy.offset = 0;  // another one has the same bytes, but who lied may have given some
}

void mover::answered(link &sender, const frame &message) {
    if (!under_way_ || under_way_->id == 0 || message.header.id != under_way_->id ||
        sender.connection != under_way_->connection)
        return;  // nobody waits for it any more
    incoming_copy &copy = *under_way_;
    weights_view received;
    if (message.header.kind != message_kind::weights) return leave_source("has not got it");
    if (const objection problem = read(message.body, plan_.sizes, received);
        problem.reason != refusal_reason::none) {
        links_.count_refusal(problem.reason);
        return leave_source("sends what cannot be read");
    }
    const uint64_t image_bytes = store_.image_bytes(copy.page);
    if (received.range.layer * plan_.sizes.experts + received.range.expert != copy.page ||
        received.range.offset != copy.offset || received.image_bytes != image_bytes ||
        received.range.bytes > image_bytes - copy.offset) {
        links_.count_refusal(refusal_reason::shape);
        return leave_source("sends something else");
    }
    std::memcpy(copy.target + copy.offset, received.bytes.data(), received.bytes.size());
    copy.offset += received.bytes.size();
    copy.id = 0;
    ++figures_.ranges;
    figures_.bytes += received.bytes.size();
    const uint64_t now_ns = steady_ns(), took_ns = now_ns - copy.asked_ns;
    figures_.busy_ns += took_ns;
    range_over(now_ns);
    if (options_.bytes_per_s == 0) next_ns_ = now_ns + 3 * took_ns;
    if (copy.offset == image_bytes) finish(/*from_own_directory=*/false);
}

void mover::finish(bool from_own_directory) {
    const uint32_t page = under_way_->page;
    if (from_own_directory) {
        store_.abandon(page);
        store_.take_own(page);
        ++figures_.from_own_directory;
    } else {
        store_.end(page);
    }
    ++figures_.copies;
    arrived_.push_back(page);
    under_way_.reset();
    wanted_.erase(wanted_.begin());
}

void mover::gone(const link &peer) {
    if (under_way_ && under_way_->id != 0 && under_way_->connection == peer.connection)
        leave_source("is gone");
}

}  // namespace moorage::core

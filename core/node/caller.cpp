// caller.cpp - sends, waits, takes in, asks somebody else.
#include "core/node/caller.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"
#include "moorage/dispatch.h"

namespace moorage::core {

namespace {

constexpr uint64_t look_ns = 50'000;          // between looks while no call is out
constexpr uint64_t wait_ns_max = 50'000'000;  // limit of one wait, so that the caller can stop

}  // namespace

caller::caller(peer_node &of, cpu_model &compute, bool own_disk)
    : node_(of),
      plan_(of.plan()),
      compute_(compute),
      own_disk_(own_disk),
      count_(static_cast<uint32_t>(plan_.servers.size())),
      of_(count_ + 1) {
    distances_.resize(count_ + 1);
    std::ranges::fill(distances_, uint8_t{MOORAGE_DISTANCE_OTHER});
    distances_[count_] = MOORAGE_DISTANCE_CLOUD;  // the last resort
    node_.attach(this);
}

caller::~caller() { node_.attach(nullptr); }

void caller::connect(uint64_t wait_ns) {
    node_.dial();
    links &all = node_.connections();
    const uint64_t end_ns = steady_ns() + wait_ns;
    const auto missing = [&] {
        for (uint32_t server = 0; server < count_; ++server)
            if (server != node_.own().server && !plan_.servers[server].addresses.empty() &&
                plan_.held_by(server) != 0 && !all.to(server) &&
                (all.trouble(server).empty() || all.trouble_passes(server)))
                return true;
        return false;
    };
    while (missing() && steady_ns() < end_ns) node_.turn(10'000'000);
    for (uint32_t server = 0; server < count_ && wait_ns != 0; ++server)
        if (server != node_.own().server && plan_.held_by(server) != 0 && !all.to(server))
            log_warning(format("node: {} is not there: {}", plan_.servers[server].name,
                               all.trouble(server).empty()
                                   ? format("{} did not answer within {:.1f} s",
                                            fmt::join(plan_.servers[server].addresses, ", "),
                                            static_cast<double>(wait_ns) / 1e9)
                                   : all.trouble(server)));
}

bool caller::usable(uint32_t server, uint64_t now_ns) {
    return server != node_.own().server && of_[server].paused_until_ns <= now_ns &&
           node_.connections().to(server) != nullptr && !node_.dead(server);
}

void caller::offers(uint32_t page, uint32_t tokens, uint32_t, std::vector<remote_offer> &out) {
    const uint64_t now_ns = steady_ns();
    const size_t before = out.size();
    for (const uint32_t server : plan_.holders_of(page)) {
        if (!usable(server, now_ns)) continue;
        if (!planned_.empty()) {
            out.push_back(offer_at(planned_[server], server, tokens));
            continue;
        }
        const call_times &times = of_[server].times;
        const uint64_t one_ns = times.expected_ns(1), two_ns = times.expected_ns(2);
        const uint64_t more_ns = two_ns > one_ns ? two_ns - one_ns : 0;
        out.push_back({server, times.expected_ns(tokens), one_ns > more_ns ? one_ns - more_ns : 0});
    }
    if (out.size() == before) out.push_back({count_, uint64_t{tokens} * 1'000'000, 0});
}

void caller::call(const remote_call &work) {
    // Calls of a step come together, those of the next when all of them have ended.
    if (flights_.empty() && here_.empty() && ready_.empty()) counted_ = false;
    if (work.server != count_ && !std::exchange(counted_, true)) ++figures_.layers_calling;
    layer_ = work.layer;
    shared_due_ = true;
    flight made;
    made.server = work.server;
    made.layer = work.layer;
    made.experts.assign(work.experts.begin(), work.experts.end());
    std::ranges::sort(made.experts, {}, &expert_work::page);
    for (const expert_work &one : made.experts)
        figures_.elsewhere += compute_.rows_of(one.page % plan_.sizes.experts).size();
    start(std::move(made));
}

// To its server; own disk is one, too.
void caller::start(flight &&made) {
    if (made.server == count_) {
        if (std::ranges::all_of(made.experts,
                                [&](const expert_work &one) { return may_here(one.page); }))
            return compute_here(made.experts);
        return fail_over(std::move(made));  // to a paused server, if there is one
    }
    link *to = node_.connections().to(made.server);
    if (to && compute_.expert_input().size() / plan_.sizes.hidden > to->rows_max) to = nullptr;
    for (const expert_work &one : made.experts)
        made.pairs +=
            static_cast<uint32_t>(compute_.rows_of(one.page % plan_.sizes.experts).size());
    made.id = next_id_++;
    made.sent_ns = steady_ns();
    const uint64_t deadline_ns = of_[made.server].times.deadline_ns(made.pairs);
    made.due_ns = made.sent_ns + deadline_ns;
    if (const uint64_t slow_ns = of_[made.server].times.slow_ns(); hedges_ && slow_ns != 0)
        made.hedge_ns = made.sent_ns + slow_ns;
    ++figures_.calls;
    figures_.experts += made.experts.size();
    figures_.pairs += made.pairs;
    if (to) {
        message_bytes written = write_call(made, deadline_ns / 1000);
        ++of_[made.server].called.calls;
        of_[made.server].called.rows += tokens_.size();
        const uint64_t request = made.request = request_of_ ? request_of_() : 0;
        // Before sending, because a reply or a failure may come at once.
        flights_.push_back(std::move(made));
        if (node_.connections().send(*to, std::move(written), message_kind::call,
                                     flights_.back().id, request))
            return;
        made = std::move(flights_.back());
        flights_.pop_back();
    }
    ++figures_.lost;
    fail_over(std::move(made));
}

// Calls that take long, to a second holder of all their experts.
void caller::hedge_slow(uint64_t now_ns) {
    std::vector<flight> more;
    for (flight &one : flights_) {
        if (one.hedge_ns > now_ns || one.twin != 0) continue;
        one.hedge_ns = UINT64_MAX;
        flight twin;
        twin.tried = one.tried;
        twin.tried.push_back(one.server);
        twin.server = next_holder(one.experts.front().page, twin, now_ns);
        const bool holds =
            twin.server < count_ && std::ranges::all_of(one.experts, [&](const expert_work &work) {
                return plan_.holds(twin.server, work.page);
            });
        if (!holds || !usable(twin.server, now_ns)) continue;
        twin.layer = one.layer;
        twin.experts = one.experts;
        twin.twin = one.id;
        one.twin = next_id_ + more.size();
        more.push_back(std::move(twin));
    }
    figures_.hedged += more.size();
    for (flight &one : more) start(std::move(one));
}

// Whether the other call of the same experts is still under way. Then this one's end loses nothing.
bool caller::has_twin(const flight &lost) {
    const auto at = std::ranges::find(flights_, lost.twin, &flight::id);
    if (lost.twin == 0 || at == flights_.end()) return false;
    at->twin = 0;
    at->hedge_ns = UINT64_MAX;
    return true;
}

void caller::drop_twin(const flight &done) {
    const auto at = std::ranges::find(flights_, done.twin, &flight::id);
    if (done.twin == 0 || at == flights_.end()) return;
    figures_.hedges_won += done.twin < done.id;
    if (link *const to = node_.connections().to(at->server))
        node_.connections().send(*to, node_.connections().take_memory(), message_kind::cancel,
                                 at->id);
    log(*at, span_end::cancelled);
    flights_.erase(at);
}

// Each token's hidden states once, whichever of the call's experts it is for.
message_bytes caller::write_call(const flight &of, uint64_t wait_us) {
    const std::span<const float> input = compute_.expert_input();
    const size_t hidden = plan_.sizes.hidden;
    local_.assign(input.size() / hidden, 0);
    tokens_.clear();
    std::vector<uint32_t> row_of;
    std::vector<expert_rows> experts;
    row_of.reserve(of.pairs);
    experts.reserve(of.experts.size());
    for (const expert_work &one : of.experts) {
        const uint32_t expert = one.page % plan_.sizes.experts;
        const auto rows = compute_.rows_of(expert);
        experts.push_back({expert, static_cast<uint32_t>(rows.size())});
        for (const uint32_t token : rows) {
            if (local_[token] == 0) {
                tokens_.push_back(token);
                local_[token] = static_cast<uint32_t>(tokens_.size());
            }
            row_of.push_back(local_[token] - 1);
        }
    }
    message_bytes written = node_.connections().take_memory();
    const auto room =
        write(written,
              call_view{.layer = of.layer,
                        .rows = static_cast<uint32_t>(tokens_.size()),
                        .wait_us = static_cast<uint32_t>(std::min<uint64_t>(wait_us, UINT32_MAX)),
                        .experts = experts,
                        .row_of = row_of,
                        .hidden_states = {}},
              plan_.sizes.hidden);
    for (size_t i = 0; i < tokens_.size(); ++i)
        std::copy_n(&input[tokens_[i] * hidden], hidden, &room[i * hidden]);
    return written;
}

void caller::answered(link &from, const frame &of) {
    const auto at = std::ranges::find(flights_, of.header.id, &flight::id);
    if (at == flights_.end() || at->server != from.server) {
        ++figures_.dropped;
        return;
    }
    flight done = std::move(*at);
    flights_.erase(at);
    if (of.header.kind == message_kind::failed) {
        refusal_view why;
        if (read(of.body, why).why != refusal_reason::none) why.why = refusal_reason::unexpected;
        ++figures_.failed;
        log(done, span_end::failed);
        if (why.why == refusal_reason::draining) from.draining = true;
        // The server would answer the next call the same way, unless that uses a newer plan.
        if (why.why != refusal_reason::epoch) pause(from.server);
        return fail_over(std::move(done));
    }
    reply_view reply;
    objection bad = read(of.body, plan_.sizes, reply);
    if (bad.why == refusal_reason::none &&
        (reply.layer != done.layer || reply.pairs != done.pairs || of.header.epoch == 0))
        bad = {refusal_reason::shape, "a reply to another question"};
    if (bad.why != refusal_reason::none) {
        ++figures_.wrong;
        log(done, span_end::wrong);
        node_.connections().count(bad.why);
        pause(from.server);
        return fail_over(std::move(done));
    }
    const uint64_t now_ns = steady_ns(), took_ns = now_ns - done.sent_ns;
    const uint64_t there_ns = (uint64_t{reply.queued_us} + reply.computed_us) * 1000;
    node_.debt(done.server)
        .called(done.pairs, done.sent_ns, now_ns, took_ns - std::min(took_ns, there_ns));
    of_[done.server].times.add(done.pairs, took_ns);
    of_[done.server].pause_ns = pause_ns_min;
    of_[done.server].called.pairs += done.pairs;
    ++figures_.replies;
    log(done, span_end::done);
    drop_twin(done);
    size_t at_value = 0;
    for (const expert_work &one : done.experts) {
        const auto to = compute_.outputs_of(one.page % plan_.sizes.experts);
        std::ranges::copy(reply.outputs.subspan(at_value, to.size()), to.begin());
        at_value += to.size();
        finish(one, took_ns);
    }
}

void caller::finish(const expert_work &one, uint64_t ns) {
    ready_.push() = {event_kind::remote_expert, one.tag, ns, MOORAGE_WHOLE};
}

void caller::gone(uint32_t server) {
    // Calls that are started again stand behind those that are looked at.
    std::deque<flight> lost;
    std::erase_if(flights_, [&](flight &one) {
        if (one.server != server) return false;
        lost.push_back(std::move(one));
        return true;
    });
    figures_.lost += lost.size();
    for (flight &one : lost) {
        log(one, span_end::lost);
        fail_over(std::move(one));
    }
}

void caller::log(const flight &of, span_end end) {
    const uint64_t now_ns = steady_ns();
    node_.spans().add({.kind = span_kind::call,
                       .end = end,
                       .server = of.server,
                       .layer = of.layer,
                       .experts = static_cast<uint32_t>(of.experts.size()),
                       .rows = of.pairs,
                       .request = of.request,
                       .home = node_.own().incarnation,
                       .id = of.id,
                       .begun_ns = of.sent_ns,
                       .started_ns = of.sent_ns,
                       .ended_ns = now_ns});
}

void caller::pause(uint32_t server) {
    one_server &of = of_[server];
    of.paused_until_ns = steady_ns() + of.pause_ns;
    of.pause_ns = std::min(2 * of.pause_ns, pause_ns_max);
}

// The usable holder that is expected to be first. A paused one only if no other can do it.
uint32_t caller::next_holder(uint32_t page, const flight &lost, uint64_t now_ns) {
    uint32_t best = no_server;
    bool best_usable = false;
    for (const uint32_t server : plan_.holders_of(page)) {
        if (std::ranges::find(lost.tried, server) != lost.tried.end()) continue;
        if (server == node_.own().server || !node_.connections().to(server)) continue;
        if (node_.dead(server)) continue;
        const bool its = usable(server, now_ns);
        if (!its && own_disk_) continue;
        if (best != no_server &&
            (best_usable != its ? best_usable
                                : of_[best].times.expected_ns(lost.pairs) <=
                                      of_[server].times.expected_ns(lost.pairs)))
            continue;
        best = server;
        best_usable = its;
    }
    return best != no_server ? best : may_here(page) ? count_ : no_server;
}

// Its experts go to others that hold them, one call each.
void caller::fail_over(flight &&lost) {
    if (has_twin(lost)) return;
    lost.tried.push_back(lost.server);
    figures_.retried += lost.experts.size();
    const uint64_t now_ns = steady_ns();
    std::vector<flight> next;
    for (const expert_work &one : lost.experts) {
        const uint32_t server = next_holder(one.page, lost, now_ns);
        if (server == no_server) {
            give_up(lost, one);
            continue;
        }
        auto at = std::ranges::find(next, server, &flight::server);
        if (at == next.end()) {
            at = next.emplace(next.end());
            at->server = server;
            at->layer = lost.layer;
            at->tried = lost.tried;
        }
        at->experts.push_back(one);
    }
    for (flight &one : next) start(std::move(one));
}

void caller::give_up(const flight &of, const expert_work &one) {
    std::string asked;
    for (const uint32_t server : of.tried)
        if (server != count_) asked += (asked.empty() ? "" : ", ") + plan_.servers[server].name;
    if (failure_.empty())
        failure_ = format(
            "expert {} of layer {} is computed by nobody: {}; start a node that "
            "holds it, or set [cluster] own_disk = true",
            one.page % plan_.sizes.experts, of.layer,
            asked.empty() ? "no holder is there" : "asked " + asked);
    std::ranges::fill(compute_.outputs_of(one.page % plan_.sizes.experts), 0.0F);
    finish(one, 0);
}

void caller::compute_here(std::span<const expert_work> experts) {
    here_.insert(here_.end(), experts.begin(), experts.end());
}

std::vector<open_call> caller::open() const {
    constexpr size_t shown_max = 32;
    std::vector<open_call> made;
    for (const flight &one : flights_) {
        if (made.size() == shown_max) break;
        made.push_back({one.server, one.layer, one.pairs, one.request, one.sent_ns});
    }
    return made;
}

// Handles calls that are late, or whose server's heartbeat has stopped.
void caller::check_deadlines() {
    if (flights_.empty()) return;
    const uint64_t now_ns = steady_ns();
    if (hedges_) hedge_slow(now_ns);
    std::deque<flight> over;
    std::erase_if(flights_, [&](flight &one) {
        if (one.due_ns > now_ns && !node_.dead(one.server)) return false;
        over.push_back(std::move(one));
        return true;
    });
    for (flight &one : over) {
        ++(one.due_ns <= now_ns ? figures_.late : figures_.lost);
        log(one, one.due_ns <= now_ns ? span_end::late : span_end::lost);
        log_info(format("node: {} did not answer for {} ms", plan_.servers[one.server].name,
                        (now_ns - one.sent_ns) / 1'000'000));
        pause(one.server);
        if (link *const to = node_.connections().to(one.server))
            node_.connections().send(*to, node_.connections().take_memory(), message_kind::cancel,
                                     one.id);
        // If two calls of the same experts are both late, only the second is repeated.
        const bool both =
            one.twin > one.id && std::ranges::find(over, one.twin, &flight::id) != over.end();
        if (!both) fail_over(std::move(one));
    }
}

// Computes the experts left to the own disk, in one loop with the shared expert.
void caller::compute_waiting() {
    const uint64_t begun_ns = steady_ns();
    std::vector<expert_call> calls;
    for (const expert_work &one : here_)
        calls.push_back(
            {one.page % plan_.sizes.experts, 0, node_.of().config().moe_intermediate, nullptr});
    compute_.experts(layer_, calls);
    figures_.here += here_.size();
    const uint64_t took_ns = steady_ns() - begun_ns;
    for (const expert_work &one : here_) finish(one, took_ns / here_.size());
    here_.clear();
}

bool caller::take(completion &out) {
    if (!flights_.empty()) {
        node_.turn(0);
        check_deadlines();
    } else if (const uint64_t now_ns = steady_ns(); now_ns - looked_ns_ > look_ns) {
        looked_ns_ = now_ns;
        node_.turn(0);
    }
    if (ready_.empty() && !here_.empty()) compute_waiting();
    if (ready_.empty()) return false;
    out = ready_.front();
    ready_.pop();
    return true;
}

void caller::wait() {
    if (!ready_.empty() || !here_.empty()) return;
    if (std::exchange(shared_due_, false)) {
        compute_.experts(layer_, std::span<const expert_call>());
        return;  // somebody may have answered meanwhile
    }
    const uint64_t begun_ns = steady_ns();
    uint64_t due_ns = begun_ns + wait_ns_max;
    for (const flight &one : flights_) due_ns = std::min({due_ns, one.due_ns, one.hedge_ns});
    node_.turn(due_ns > begun_ns ? due_ns - begun_ns : 0);
    figures_.waited_ns += steady_ns() - begun_ns;
    check_deadlines();
}

}  // namespace moorage::core

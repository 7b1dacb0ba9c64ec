// caller.cpp - sends, waits, takes in, asks somebody else.
#include "tools/node/caller.h"

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

caller::caller(peer_node &node, node_compute &compute, bool own_disk)
    : node_(node),
      plan_(node.plan()),
      compute_(compute),
      own_disk_(own_disk),
      count_(static_cast<uint32_t>(plan_.servers.size())),
      peers_(count_ + 1) {
    distances_.resize(count_ + 1);
    std::ranges::fill(distances_, uint8_t{MOORAGE_DISTANCE_OTHER});
    distances_[count_] = MOORAGE_DISTANCE_CLOUD;  // the last resort
    node_.attach(this);
}

caller::~caller() { node_.attach(nullptr); }

void caller::connect(uint64_t wait_ns) {
    node_.dial();
    links &connections = node_.connections();
    const uint64_t end_ns = steady_ns() + wait_ns;
    const auto missing = [&] {
        for (uint32_t server = 0; server < count_; ++server)
            if (server != node_.identity().server && !plan_.servers[server].addresses.empty() &&
                plan_.held_by(server) != 0 && !connections.call_link(server) &&
                (connections.trouble(server).empty() || connections.is_trouble_temporary(server)))
                return true;
        return false;
    };
    while (missing() && steady_ns() < end_ns) node_.turn(10'000'000);
    for (uint32_t server = 0; server < count_ && wait_ns != 0; ++server)
        if (server != node_.identity().server && plan_.held_by(server) != 0 &&
            !connections.call_link(server))
            log_warning(format("node: {} is not there: {}", plan_.servers[server].name,
                               connections.trouble(server).empty()
                                   ? format("{} did not answer within {:.1f} s",
                                            fmt::join(plan_.servers[server].addresses, ", "),
                                            static_cast<double>(wait_ns) / 1e9)
                                   : connections.trouble(server)));
}

bool caller::is_usable(uint32_t server, uint64_t now_ns) {
    return server != node_.identity().server && peers_[server].paused_until_ns <= now_ns &&
           node_.connections().call_link(server) != nullptr && !node_.is_dead(server);
}

void caller::offers(uint32_t page, uint32_t tokens, uint32_t, std::vector<remote_offer> &offers) {
    const uint64_t now_ns = steady_ns();
    const size_t old_count = offers.size();
    for (const uint32_t server : plan_.holders_of(page)) {
        if (!is_usable(server, now_ns)) continue;
        if (!planned_prices_.empty()) {
            offers.push_back(offer_at(planned_prices_[server], server, tokens));
            continue;
        }
        const call_times &times = peers_[server].times;
        const uint64_t one_ns = times.expected_ns(1), two_ns = times.expected_ns(2);
        const uint64_t more_ns = two_ns > one_ns ? two_ns - one_ns : 0;
        offers.push_back(
            {server, times.expected_ns(tokens), one_ns > more_ns ? one_ns - more_ns : 0});
    }
    if (offers.size() == old_count) offers.push_back({count_, uint64_t{tokens} * 1'000'000, 0});
}

void caller::call(const call_request &request) {
    // Calls of a step come together, those of the next when all of them have ended.
    if (calls_.empty() && disk_experts_.empty() && ready_.empty()) counted_ = false;
    if (request.server != count_ && !std::exchange(counted_, true)) ++figures_.layers_calling;
    layer_ = request.layer;
    shared_due_ = true;
    pending_call call;
    call.server = request.server;
    call.layer = request.layer;
    call.experts.assign(request.experts.begin(), request.experts.end());
    std::ranges::sort(call.experts, {}, &expert_work::page);
    for (const expert_work &expert : call.experts)
        figures_.elsewhere += compute_.rows_of(expert.page % plan_.sizes.experts).size();
    send(std::move(call));
}

// To its server; own disk is one, too.
void caller::send(pending_call &&call) {
    if (call.server == count_) {
        if (std::ranges::all_of(call.experts, [&](const expert_work &expert) {
                return may_compute_here(expert.page);
            }))
            return queue_own_disk(call.experts);
        return fail_over(std::move(call));  // to a paused server, if there is one
    }
    link *target = node_.connections().call_link(call.server);
    if (target && compute_.expert_input().size() / plan_.sizes.hidden > target->rows_max)
        target = nullptr;
    for (const expert_work &expert : call.experts)
        call.pairs +=
            static_cast<uint32_t>(compute_.rows_of(expert.page % plan_.sizes.experts).size());
    call.id = next_id_++;
    call.sent_ns = steady_ns();
    const uint64_t deadline_ns = peers_[call.server].times.deadline_ns(call.pairs);
    call.due_ns = call.sent_ns + deadline_ns;
    if (const uint64_t slow_ns = peers_[call.server].times.slow_ns();
        hedging_enabled_ && slow_ns != 0)
        call.hedge_ns = call.sent_ns + slow_ns;
    ++figures_.calls;
    figures_.experts += call.experts.size();
    figures_.pairs += call.pairs;
    if (target) {
        message_bytes written = write_call(call, deadline_ns / 1000);
        ++peers_[call.server].called.calls;
        peers_[call.server].called.rows += tokens_.size();
        const uint64_t request = call.request = current_request_ ? current_request_() : 0;
        // Before sending, because a reply or a failure may come at once.
        calls_.push_back(std::move(call));
        if (node_.connections().send(*target, std::move(written), message_kind::call,
                                     calls_.back().id, request))
            return;
        call = std::move(calls_.back());
        calls_.pop_back();
    }
    ++figures_.lost;
    fail_over(std::move(call));
}

// Calls that take long, to a second holder of all their experts.
void caller::hedge_slow(uint64_t now_ns) {
    std::vector<pending_call> twins;
    for (pending_call &call : calls_) {
        if (call.hedge_ns > now_ns || call.twin_id != 0) continue;
        call.hedge_ns = UINT64_MAX;
        pending_call twin;
        twin.tried = call.tried;
        twin.tried.push_back(call.server);
        twin.server = next_holder(call.experts.front().page, twin, now_ns);
        const bool holds = twin.server < count_ &&
                           std::ranges::all_of(call.experts, [&](const expert_work &expert) {
                               return plan_.holds(twin.server, expert.page);
                           });
        if (!holds || !is_usable(twin.server, now_ns)) continue;
        twin.layer = call.layer;
        twin.experts = call.experts;
        twin.twin_id = call.id;
        call.twin_id = next_id_ + twins.size();
        twins.push_back(std::move(twin));
    }
    figures_.hedged += twins.size();
    for (pending_call &twin : twins) send(std::move(twin));
}

// Whether the other call of the same experts is still under way. Then this one's end loses nothing.
bool caller::detach_twin(const pending_call &lost) {
    const auto twin = std::ranges::find(calls_, lost.twin_id, &pending_call::id);
    if (lost.twin_id == 0 || twin == calls_.end()) return false;
    twin->twin_id = 0;
    twin->hedge_ns = UINT64_MAX;
    return true;
}

void caller::drop_twin(const pending_call &finished) {
    const auto twin = std::ranges::find(calls_, finished.twin_id, &pending_call::id);
    if (finished.twin_id == 0 || twin == calls_.end()) return;
    figures_.hedges_won += finished.twin_id < finished.id;
    if (link *const target = node_.connections().call_link(twin->server))
        node_.connections().send(*target, node_.connections().take_memory(), message_kind::cancel,
                                 twin->id);
    log(*twin, span_end::cancelled);
    calls_.erase(twin);
}

// Each token's hidden states once, whichever of the call's experts it is for.
message_bytes caller::write_call(const pending_call &call, uint64_t wait_us) {
    const std::span<const float> input = compute_.expert_input();
    const size_t hidden = plan_.sizes.hidden;
    row_of_token_.assign(input.size() / hidden, 0);
    tokens_.clear();
    std::vector<uint32_t> row_of;
    std::vector<expert_rows> experts;
    row_of.reserve(call.pairs);
    experts.reserve(call.experts.size());
    for (const expert_work &expert : call.experts) {
        const uint32_t expert_index = expert.page % plan_.sizes.experts;
        const auto rows = compute_.rows_of(expert_index);
        experts.push_back({expert_index, static_cast<uint32_t>(rows.size())});
        for (const uint32_t token : rows) {
            if (row_of_token_[token] == 0) {
                tokens_.push_back(token);
                row_of_token_[token] = static_cast<uint32_t>(tokens_.size());
            }
            row_of.push_back(row_of_token_[token] - 1);
        }
    }
    message_bytes written = node_.connections().take_memory();
    const auto room =
        write(written,
              call_view{.layer = call.layer,
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

void caller::answered(link &sender, const frame &message) {
    const auto found = std::ranges::find(calls_, message.header.id, &pending_call::id);
    if (found == calls_.end() || found->server != sender.server) {
        ++figures_.dropped;
        return;
    }
    pending_call call = std::move(*found);
    calls_.erase(found);
    if (message.header.kind == message_kind::failed) {
        refusal_view refusal;
        if (read(message.body, refusal).reason != refusal_reason::none)
            refusal.reason = refusal_reason::unexpected;
        ++figures_.failed;
        log(call, span_end::failed);
        if (refusal.reason == refusal_reason::draining) sender.draining = true;
        // The server would answer the next call the same way, unless that uses a newer plan.
        if (refusal.reason != refusal_reason::epoch) pause(sender.server);
        return fail_over(std::move(call));
    }
    reply_view reply;
    objection problem = read(message.body, plan_.sizes, reply);
    if (problem.reason == refusal_reason::none &&
        (reply.layer != call.layer || reply.pairs != call.pairs || message.header.epoch == 0))
        problem = {refusal_reason::shape, "a reply to another question"};
    if (problem.reason != refusal_reason::none) {
        ++figures_.wrong;
        log(call, span_end::wrong);
        node_.connections().count_refusal(problem.reason);
        pause(sender.server);
        return fail_over(std::move(call));
    }
    const uint64_t now_ns = steady_ns(), took_ns = now_ns - call.sent_ns;
    const uint64_t server_ns = (uint64_t{reply.queued_us} + reply.computed_us) * 1000;
    node_.debt(call.server)
        .add_call(call.pairs, call.sent_ns, now_ns, took_ns - std::min(took_ns, server_ns));
    peers_[call.server].times.add(call.pairs, took_ns);
    peers_[call.server].pause_ns = pause_ns_min;
    peers_[call.server].called.pairs += call.pairs;
    ++figures_.replies;
    log(call, span_end::done);
    drop_twin(call);
    size_t first_value = 0;
    for (const expert_work &expert : call.experts) {
        const auto outputs = compute_.outputs_of(expert.page % plan_.sizes.experts);
        std::ranges::copy(reply.outputs.subspan(first_value, outputs.size()), outputs.begin());
        first_value += outputs.size();
        finish(expert, took_ns);
    }
}

void caller::finish(const expert_work &expert, uint64_t ns) {
    ready_.push() = {event_kind::remote_expert, expert.tag, ns, MOORAGE_WHOLE};
}

void caller::gone(uint32_t server) {
    // Calls that are started again stand behind those that are looked at.
    std::deque<pending_call> lost;
    std::erase_if(calls_, [&](pending_call &call) {
        if (call.server != server) return false;
        lost.push_back(std::move(call));
        return true;
    });
    figures_.lost += lost.size();
    for (pending_call &call : lost) {
        log(call, span_end::lost);
        fail_over(std::move(call));
    }
}

void caller::log(const pending_call &call, span_end end) {
    const uint64_t now_ns = steady_ns();
    node_.spans().add({.kind = span_kind::call,
                       .end = end,
                       .server = call.server,
                       .layer = call.layer,
                       .experts = static_cast<uint32_t>(call.experts.size()),
                       .rows = call.pairs,
                       .request = call.request,
                       .home = node_.identity().incarnation,
                       .id = call.id,
                       .begun_ns = call.sent_ns,
                       .started_ns = call.sent_ns,
                       .ended_ns = now_ns});
}

void caller::pause(uint32_t server) {
    peer_state &peer = peers_[server];
    peer.paused_until_ns = steady_ns() + peer.pause_ns;
    peer.pause_ns = std::min(2 * peer.pause_ns, pause_ns_max);
}

// The usable holder that is expected to be first. A paused one only if no other can do it.
uint32_t caller::next_holder(uint32_t page, const pending_call &lost, uint64_t now_ns) {
    uint32_t best = no_server;
    bool best_usable = false;
    for (const uint32_t server : plan_.holders_of(page)) {
        if (std::ranges::find(lost.tried, server) != lost.tried.end()) continue;
        if (server == node_.identity().server || !node_.connections().call_link(server)) continue;
        if (node_.is_dead(server)) continue;
        const bool server_usable = is_usable(server, now_ns);
        if (!server_usable && own_disk_) continue;
        if (best != no_server &&
            (best_usable != server_usable ? best_usable
                                          : peers_[best].times.expected_ns(lost.pairs) <=
                                                peers_[server].times.expected_ns(lost.pairs)))
            continue;
        best = server;
        best_usable = server_usable;
    }
    return best != no_server ? best : may_compute_here(page) ? count_ : no_server;
}

// Its experts go to others that hold them, one call each.
void caller::fail_over(pending_call &&lost) {
    if (detach_twin(lost)) return;
    lost.tried.push_back(lost.server);
    figures_.retried += lost.experts.size();
    const uint64_t now_ns = steady_ns();
    std::vector<pending_call> calls;
    for (const expert_work &expert : lost.experts) {
        const uint32_t server = next_holder(expert.page, lost, now_ns);
        if (server == no_server) {
            fail_expert(lost, expert);
            continue;
        }
        auto found = std::ranges::find(calls, server, &pending_call::server);
        if (found == calls.end()) {
            found = calls.emplace(calls.end());
            found->server = server;
            found->layer = lost.layer;
            found->tried = lost.tried;
        }
        found->experts.push_back(expert);
    }
    for (pending_call &call : calls) send(std::move(call));
}

void caller::fail_expert(const pending_call &call, const expert_work &expert) {
    std::string asked;
    for (const uint32_t server : call.tried)
        if (server != count_) asked += (asked.empty() ? "" : ", ") + plan_.servers[server].name;
    if (failure_.empty())
        failure_ = format(
            "expert {} of layer {} is computed by nobody: {}; start a node that "
            "holds it, or set [cluster] own_disk = true",
            expert.page % plan_.sizes.experts, call.layer,
            asked.empty() ? "no holder is there" : "asked " + asked);
    std::ranges::fill(compute_.outputs_of(expert.page % plan_.sizes.experts), 0.0F);
    finish(expert, 0);
}

void caller::queue_own_disk(std::span<const expert_work> experts) {
    disk_experts_.insert(disk_experts_.end(), experts.begin(), experts.end());
}

std::vector<call_status> caller::open_calls() const {
    constexpr size_t shown_max = 32;
    std::vector<call_status> calls;
    for (const pending_call &call : calls_) {
        if (calls.size() == shown_max) break;
        calls.push_back({call.server, call.layer, call.pairs, call.request, call.sent_ns});
    }
    return calls;
}

// Handles calls that are late, or whose server's heartbeat has stopped.
void caller::check_deadlines() {
    if (calls_.empty()) return;
    const uint64_t now_ns = steady_ns();
    if (hedging_enabled_) hedge_slow(now_ns);
    std::deque<pending_call> expired;
    std::erase_if(calls_, [&](pending_call &call) {
        if (call.due_ns > now_ns && !node_.is_dead(call.server)) return false;
        expired.push_back(std::move(call));
        return true;
    });
    for (pending_call &call : expired) {
        ++(call.due_ns <= now_ns ? figures_.late : figures_.lost);
        log(call, call.due_ns <= now_ns ? span_end::late : span_end::lost);
        log_info(format("node: {} did not answer for {} ms", plan_.servers[call.server].name,
                        (now_ns - call.sent_ns) / 1'000'000));
        pause(call.server);
        if (link *const target = node_.connections().call_link(call.server))
            node_.connections().send(*target, node_.connections().take_memory(),
                                     message_kind::cancel, call.id);
        // If two calls of the same experts are both late, only the second is repeated.
        const bool both_late =
            call.twin_id > call.id &&
            std::ranges::find(expired, call.twin_id, &pending_call::id) != expired.end();
        if (!both_late) fail_over(std::move(call));
    }
}

// Computes the experts left to the own disk, in one loop with the shared expert.
void caller::compute_own_disk() {
    const uint64_t begun_ns = steady_ns();
    std::vector<expert_call> calls;
    for (const expert_work &expert : disk_experts_)
        calls.push_back({expert.page % plan_.sizes.experts, 0,
                         node_.loaded_model().config().moe_intermediate, nullptr});
    compute_.run_experts(layer_, calls);
    figures_.from_own_disk += disk_experts_.size();
    const uint64_t took_ns = steady_ns() - begun_ns;
    for (const expert_work &expert : disk_experts_) finish(expert, took_ns / disk_experts_.size());
    disk_experts_.clear();
}

bool caller::take(completion &done) {
    if (!calls_.empty()) {
        node_.turn(0);
        check_deadlines();
    } else if (const uint64_t now_ns = steady_ns(); now_ns - looked_ns_ > look_ns) {
        looked_ns_ = now_ns;
        node_.turn(0);
    }
    if (ready_.empty() && !disk_experts_.empty()) compute_own_disk();
    if (ready_.empty()) return false;
    done = ready_.front();
    ready_.pop();
    return true;
}

void caller::wait() {
    if (!ready_.empty() || !disk_experts_.empty()) return;
    if (std::exchange(shared_due_, false)) {
        compute_.run_experts(layer_, std::span<const expert_call>());
        return;  // somebody may have answered meanwhile
    }
    const uint64_t begun_ns = steady_ns();
    uint64_t due_ns = begun_ns + wait_ns_max;
    for (const pending_call &call : calls_) due_ns = std::min({due_ns, call.due_ns, call.hedge_ns});
    node_.turn(due_ns > begun_ns ? due_ns - begun_ns : 0);
    figures_.waited_ns += steady_ns() - begun_ns;
    check_deadlines();
}

}  // namespace moorage::core

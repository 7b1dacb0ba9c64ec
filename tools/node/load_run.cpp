// load_run.cpp - a client of homes: one connection each, requests by id.
#include "tools/node/load_run.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/base/text.h"
#include "core/base/visible.h"
#include "tools/node/links.h"

namespace moorage::core {

namespace {

constexpr uint64_t load_look_ns = 20'000'000;
constexpr uint64_t load_ping_ns = 1'000'000'000;

// The plan, of which only these servers are connected to.
node_plan plan_of_homes(const node_plan &plan, const std::vector<load_request> &requests) {
    node_plan reduced = plan;
    std::vector<bool> asked(plan.servers.size());
    for (const load_request &request : requests) asked[request.home] = true;
    for (size_t i = 0; i < asked.size(); ++i)
        if (!asked[i]) reduced.servers[i].addresses.clear();
    return reduced;
}

class load final : public link_events {
public:
    load(wire &message_wire, const node_plan &plan, uint64_t incarnation,
         const std::vector<load_request> &requests, const load_options &options)
        : requests_(requests),
          options_(options),
          plan_(plan_of_homes(plan, requests)),
          identity_{no_server, incarnation, "moorage load"},
          links_(message_wire, plan_, identity_, *this),
          outcomes_(requests.size()) {}

    std::vector<load_outcome> operator()() {
        connect();
        begin_ns_ = steady_ns();
        size_t next = 0;
        while ((next < requests_.size() || !open_.empty()) && !(options_.stop && options_.stop())) {
            for (; next < requests_.size() && requests_[next].at_ns <= now_ns(); ++next) ask(next);
            uint64_t wait_ns = load_look_ns;
            if (next < requests_.size())
                wait_ns = std::min(
                    wait_ns, requests_[next].at_ns - std::min(requests_[next].at_ns, now_ns()));
            links_.turn(wait_ns);
            ping();
            end_late();
        }
        for (const auto &[id, request] : open_) outcomes_[request].text = "the load was stopped";
        links_.for_each([&](link &home) { links_.close(home); });
        for (int i = 0; i < 10 && links_.count_open() != 0; ++i) links_.turn(load_look_ns / 4);
        return std::move(outcomes_);
    }

private:
    uint64_t now_ns() const { return steady_ns() - begin_ns_; }

    void connect() {
        links_.dial();
        const uint64_t end_ns = steady_ns() + options_.connect_ns;
        const auto is_settled = [&] {
            return std::ranges::all_of(requests_, [&](const load_request &request) {
                return links_.call_link(request.home) ||
                       (!links_.trouble(request.home).empty() &&
                        !links_.is_trouble_temporary(request.home));
            });
        };
        while (!is_settled() && steady_ns() < end_ns && !(options_.stop && options_.stop()))
            links_.turn(load_look_ns);
    }

    void ask(size_t request) {
        const load_request &planned = requests_[request];
        load_outcome &outcome = outcomes_[request];
        outcome.sent_ns = now_ns();
        link *const target = links_.call_link(planned.home);
        if (!target) {
            const std::string &trouble = links_.trouble(planned.home);
            return end(request, load_end::away, trouble.empty() ? "it is not connected" : trouble);
        }
        const uint64_t id = request + 1;
        message_bytes written = links_.take_memory();
        write(written, ask_view{planned.request.new_tokens, planned.request.ids});
        open_[id] = request;
        heard_ns_[id] = outcome.sent_ns;
        if (!links_.send(*target, std::move(written), message_kind::ask, id) &&
            open_.erase(id) != 0)
            lose(request);
    }

    void end(size_t request, load_end end, const std::string &text) {
        load_outcome &outcome = outcomes_[request];
        outcome.end = end;
        outcome.text = text;
        outcome.ended_ns = now_ns();
        open_.erase(request + 1);
        heard_ns_.erase(request + 1);
        if (options_.on_end) options_.on_end(request, outcome);
    }

    void lose(size_t request) {
        end(request, load_end::lost,
            format("the connection ended after {} of {} tokens", outcomes_[request].written.size(),
                   requests_[request].request.new_tokens));
    }

    void end_late() {
        const uint64_t now = now_ns();
        if (now - looked_ns_ < load_look_ns) return;
        looked_ns_ = now;
        std::map<size_t, std::string> late;  // why
        for (const auto &[id, request] : open_) {
            const link *const home = links_.call_link(requests_[request].home);
            if (now - heard_ns_[id] > options_.patience_ns)
                late[request] =
                    format("nothing came for {} s", options_.patience_ns / 1'000'000'000);
            else if (home && is_silent(*home))
                late[request] =
                    format("its home has not answered a ping for {} s; it is stopped or hung",
                           options_.silence_ns / 1'000'000'000);
        }
        for (const auto &[request, reason] : late) {
            cancel(request);
            end(request, load_end::late, reason + how_far(request));
        }
    }

    // A computing node answers pings between its operations. So a request that waits for its turn
    // differs from a home that is stopped.
    void ping() {
        const uint64_t now = steady_ns();
        if (open_.empty() || now - pinged_ns_ < load_ping_ns) return;
        pinged_ns_ = now;
        links_.for_each([&](link &home) {
            if (home.state != link::state_kind::ready || !home.waiting.empty()) return;
            uint64_t &asked_ns = asked_ns_[home.connection];
            if (asked_ns > home.heard_ns) return;  // one ping on its way is enough
            asked_ns = now;
            message_bytes written = links_.take_memory();
            write(written, ping_view{now});
            links_.send(home, std::move(written), message_kind::ping, 0);
        });
    }
    bool is_silent(const link &home) const {
        const auto asked = asked_ns_.find(home.connection);
        return asked != asked_ns_.end() && asked->second > home.heard_ns &&
               steady_ns() - asked->second > options_.silence_ns;
    }
    std::string how_far(size_t request) const {
        const size_t written = outcomes_[request].written.size();
        if (written == 0) return "";
        return format("; {} of {} tokens had come", written, requests_[request].request.new_tokens);
    }

    void cancel(size_t request) {
        if (link *const home = links_.call_link(requests_[request].home))
            links_.send(*home, links_.take_memory(), message_kind::cancel, request + 1);
    }

    void ready(link &) override {}
    bool arrived(link &sender, const frame &message, uint64_t) override {
        if (message.header.kind == message_kind::refusal) {
            links_.handle_refusal(sender, message);
            return false;
        }
        // It still answers the requests that it took.
        if (message.header.kind == message_kind::goodbye) return false;
        const auto found = open_.find(message.header.id);
        if (found == open_.end() || requests_[found->second].home != sender.server) return false;
        if (message.header.kind == message_kind::failed)
            handle_refusal(found->second, message);
        else if (message.header.kind == message_kind::tokens)
            receive_tokens(sender, found->second, message);
        else
            links_.refuse(sender, refusal_reason::unexpected, "it was not asked for that");
        return false;
    }
    void handle_refusal(size_t request, const frame &message) {
        refusal_view refusal;
        const bool is_readable = read(message.body, refusal).reason == refusal_reason::none;
        end(request, load_end::refused,
            is_readable ? format("{}: {}", name_of(refusal.reason), visible(refusal.text))
                        : "it does not say why");
    }
    void receive_tokens(link &sender, size_t request, const frame &message) {
        tokens_view news;
        load_outcome &outcome = outcomes_[request];
        if (const objection problem = read(message.body, news);
            problem.reason != refusal_reason::none)
            return links_.refuse(sender, problem.reason, problem.text);
        if (outcome.written.size() + news.ids.size() > requests_[request].request.new_tokens)
            return links_.refuse(sender, refusal_reason::size, "more tokens than were asked for");
        heard_ns_[message.header.id] = now_ns();
        if (!news.ids.empty() && outcome.first_ns == MOORAGE_NEVER) outcome.first_ns = now_ns();
        outcome.written.insert(outcome.written.end(), news.ids.begin(), news.ids.end());
        outcome.queued_us = news.queued_us;
        outcome.number = message.header.request;
        if (options_.on_tokens && !news.ids.empty()) options_.on_tokens(request, news.ids);
        const bool cut = !news.last && options_.has_enough && options_.has_enough(request);
        if (news.last || cut) end(request, load_end::answered, "");
        if (cut) cancel(request);
    }
    void gone(link &peer) override {
        std::vector<size_t> lost;
        for (const auto &[id, request] : open_)
            if (requests_[request].home == peer.server) lost.push_back(request);
        std::ranges::sort(lost);
        for (const size_t request : lost) lose(request);
    }

    const std::vector<load_request> &requests_;
    const load_options &options_;
    const node_plan plan_;
    const node_identity identity_;
    links links_;
    std::vector<load_outcome> outcomes_;
    std::unordered_map<uint64_t, size_t> open_;        // by id
    std::unordered_map<uint64_t, uint64_t> heard_ns_;  // of those
    std::unordered_map<uint64_t, uint64_t> asked_ns_;  // by connection: of the latest ping
    uint64_t begin_ns_ = 0, looked_ns_ = 0, pinged_ns_ = 0;
};

}  // namespace

const char *name_of(load_end end) {
    constexpr const char *names[] = {"answered", "refused", "lost", "away", "late", "stopped"};
    return names[static_cast<size_t>(end)];
}

std::vector<load_outcome> run_load(wire &message_wire, const node_plan &plan, uint64_t incarnation,
                                   const std::vector<load_request> &requests,
                                   const load_options &options) {
    return load(message_wire, plan, incarnation, requests, options)();
}

}  // namespace moorage::core

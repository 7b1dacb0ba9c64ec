// load_run.cpp - a client of homes: one connection each, requests by id.
#include "core/node/load_run.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/base/text.h"
#include "core/base/visible.h"
#include "core/node/links.h"

namespace moorage::core {

namespace {

constexpr uint64_t load_look_ns = 20'000'000;
constexpr uint64_t load_ping_ns = 1'000'000'000;

// The plan, of which only these servers are connected to.
node_plan only(const node_plan &of, const std::vector<load_request> &requests) {
    node_plan made = of;
    std::vector<bool> asked(of.servers.size());
    for (const load_request &one : requests) asked[one.home] = true;
    for (size_t i = 0; i < asked.size(); ++i)
        if (!asked[i]) made.servers[i].addresses.clear();
    return made;
}

class load final : public link_events {
public:
    load(wire &over, const node_plan &plan, uint64_t incarnation,
         const std::vector<load_request> &requests, const load_options &options)
        : requests_(requests),
          options_(options),
          plan_(only(plan, requests)),
          own_{no_server, incarnation, "moorage load"},
          links_(over, plan_, own_, *this),
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
        links_.each([&](link &one) { links_.close(one); });
        for (int i = 0; i < 10 && links_.count_open() != 0; ++i) links_.turn(load_look_ns / 4);
        return std::move(outcomes_);
    }

private:
    uint64_t now_ns() const { return steady_ns() - begin_ns_; }

    void connect() {
        links_.dial();
        const uint64_t end_ns = steady_ns() + options_.connect_ns;
        const auto all = [&] {
            return std::ranges::all_of(requests_, [&](const load_request &one) {
                return links_.to(one.home) ||
                       (!links_.trouble(one.home).empty() && !links_.trouble_passes(one.home));
            });
        };
        while (!all() && steady_ns() < end_ns && !(options_.stop && options_.stop()))
            links_.turn(load_look_ns);
    }

    void ask(size_t request) {
        const load_request &what = requests_[request];
        load_outcome &out = outcomes_[request];
        out.sent_ns = now_ns();
        link *const to = links_.to(what.home);
        if (!to) {
            const std::string &why = links_.trouble(what.home);
            return end(request, load_end::away, why.empty() ? "it is not connected" : why);
        }
        const uint64_t id = request + 1;
        message_bytes written = links_.take_memory();
        write(written, ask_view{what.of.new_tokens, what.of.ids});
        open_[id] = request;
        heard_ns_[id] = out.sent_ns;
        if (!links_.send(*to, std::move(written), message_kind::ask, id) && open_.erase(id) != 0)
            lose(request);
    }

    void end(size_t request, load_end how, const std::string &text) {
        load_outcome &out = outcomes_[request];
        out.how = how;
        out.text = text;
        out.ended_ns = now_ns();
        open_.erase(request + 1);
        heard_ns_.erase(request + 1);
        if (options_.on_end) options_.on_end(request, out);
    }

    void lose(size_t request) {
        end(request, load_end::lost,
            format("the connection ended after {} of {} tokens", outcomes_[request].written.size(),
                   requests_[request].of.new_tokens));
    }

    void end_late() {
        const uint64_t now = now_ns();
        if (now - looked_ns_ < load_look_ns) return;
        looked_ns_ = now;
        std::map<size_t, std::string> late;  // why
        for (const auto &[id, request] : open_) {
            const link *const home = links_.to(requests_[request].home);
            if (now - heard_ns_[id] > options_.patience_ns)
                late[request] =
                    format("nothing came for {} s", options_.patience_ns / 1'000'000'000);
            else if (home && is_silent(*home))
                late[request] =
                    format("its home has not answered a ping for {} s; it is stopped or hung",
                           options_.silence_ns / 1'000'000'000);
        }
        for (const auto &[request, why] : late) {
            cancel(request);
            end(request, load_end::late, why + how_far(request));
        }
    }

    // A computing node answers pings between its operations. So a request that waits for its turn
    // differs from a home that is stopped.
    void ping() {
        const uint64_t now = steady_ns();
        if (open_.empty() || now - pinged_ns_ < load_ping_ns) return;
        pinged_ns_ = now;
        links_.each([&](link &home) {
            if (home.stands != link::stand::ready || !home.waiting.empty()) return;
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
        return format("; {} of {} tokens had come", written, requests_[request].of.new_tokens);
    }

    void cancel(size_t request) {
        if (link *const home = links_.to(requests_[request].home))
            links_.send(*home, links_.take_memory(), message_kind::cancel, request + 1);
    }

    void ready(link &) override {}
    bool arrived(link &from, const frame &of, uint64_t) override {
        if (of.header.kind == message_kind::refusal) {
            links_.refused(from, of);
            return false;
        }
        // It still answers the requests that it took.
        if (of.header.kind == message_kind::goodbye) return false;
        const auto at = open_.find(of.header.id);
        if (at == open_.end() || requests_[at->second].home != from.server) return false;
        if (of.header.kind == message_kind::failed)
            refused(at->second, of);
        else if (of.header.kind == message_kind::tokens)
            take(from, at->second, of);
        else
            links_.refuse(from, refusal_reason::unexpected, "it was not asked for that");
        return false;
    }
    void refused(size_t request, const frame &of) {
        refusal_view why;
        const bool said = read(of.body, why).why == refusal_reason::none;
        end(request, load_end::refused,
            said ? format("{}: {}", name_of(why.why), visible(why.text)) : "it does not say why");
    }
    void take(link &from, size_t request, const frame &of) {
        tokens_view news;
        load_outcome &out = outcomes_[request];
        if (const objection bad = read(of.body, news); bad.why != refusal_reason::none)
            return links_.refuse(from, bad.why, bad.text);
        if (out.written.size() + news.ids.size() > requests_[request].of.new_tokens)
            return links_.refuse(from, refusal_reason::size, "more tokens than were asked for");
        heard_ns_[of.header.id] = now_ns();
        if (!news.ids.empty() && out.first_ns == MOORAGE_NEVER) out.first_ns = now_ns();
        out.written.insert(out.written.end(), news.ids.begin(), news.ids.end());
        out.queued_us = news.queued_us;
        out.number = of.header.request;
        if (options_.on_tokens && !news.ids.empty()) options_.on_tokens(request, news.ids);
        const bool cut = !news.last && options_.has_enough && options_.has_enough(request);
        if (news.last || cut) end(request, load_end::answered, "");
        if (cut) cancel(request);
    }
    void gone(link &which) override {
        std::vector<size_t> lost;
        for (const auto &[id, request] : open_)
            if (requests_[request].home == which.server) lost.push_back(request);
        std::ranges::sort(lost);
        for (const size_t request : lost) lose(request);
    }

    const std::vector<load_request> &requests_;
    const load_options &options_;
    const node_plan plan_;
    const node_identity own_;
    links links_;
    std::vector<load_outcome> outcomes_;
    std::unordered_map<uint64_t, size_t> open_;        // by id
    std::unordered_map<uint64_t, uint64_t> heard_ns_;  // of those
    std::unordered_map<uint64_t, uint64_t> asked_ns_;  // by connection: of the latest ping
    uint64_t begin_ns_ = 0, looked_ns_ = 0, pinged_ns_ = 0;
};

}  // namespace

const char *name_of(load_end how) {
    constexpr const char *names[] = {"answered", "refused", "lost", "away", "late", "stopped"};
    return names[static_cast<size_t>(how)];
}

std::vector<load_outcome> run_load(wire &over, const node_plan &plan, uint64_t incarnation,
                                   const std::vector<load_request> &requests,
                                   const load_options &options) {
    return load(over, plan, incarnation, requests, options)();
}

}  // namespace moorage::core

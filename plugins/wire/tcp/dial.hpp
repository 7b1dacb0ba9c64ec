// dial.hpp - from a target to an open session.
//
// A dial tries all addresses. It greets the first peer that proves the right identity. Attempts
// begin 25 ms apart, or as soon as the one before has failed. Only one peer is greeted at a time,
// so a peer with several addresses does not see several connections.
#pragma once

#include "address.hpp"
#include "session.hpp"

namespace tcp_wire {

class dial;

class exchange : public keeper {
public:
    virtual void connected(dial &, const std::shared_ptr<session> &, uint64_t send_bytes_max) = 0;
    virtual void gave_up(dial &, int32_t reason, std::string words) = 0;
    virtual lookups &names() = 0;
};

class dial final : public keeper, public worker, public std::enable_shared_from_this<dial> {
public:
    static constexpr size_t attempts_max = 16;

    dial(wire_context &context, exchange &exchange, int32_t channel, std::string identity)
        : channel(channel),
          context_(context),
          exchange_(exchange),
          identity_(std::move(identity)),
          deadline_(context.io),
          stagger_(context.io) {}

    uint64_t number = 0;  // the number in the exchange
    const int32_t channel;

    void begin(const std::vector<address> &targets) {
        const auto self = shared_from_this();
        deadline_.expires_after(duration_of(context_.limits.connect_ns));
        deadline_.async_wait([self](failure stopped) {
            if (!stopped) self->guard([&] { self->too_late(); });
        });
        for (const address &target : targets) {
            if (target.numeric) {
                waiting_.emplace_back(target.endpoints()[0]);
                continue;
            }
            ++asked_;
            exchange_.names().ask(
                context_.io, target,
                [weak = weak_from_this(), name = target.text()](
                    const std::vector<tcp::endpoint> &found, const std::string &error) {
                    const auto dial = weak.lock();
                    if (dial) dial->guard([&] { dial->looked_up(name, found, error); });
                });
        }
        next();
    }
    // Drops all that is left of it, without an event.
    void drop() {
        ended_ = true;
        deadline_.cancel(), stagger_.cancel();
        failure ignored;
        for (const auto &socket : connecting_) socket->close(ignored);
        for (const auto &session : sessions_) session->drop();
        connecting_.clear(), sessions_.clear(), waiting_.clear();
        chosen_ = nullptr;
    }
    void out_of_memory() override {
        if (ended_) return;
        reason_ = MOORAGE_WIRE_LOST, words_ = "no memory";
        give_up();
    }

    void secured(session &session) override {
        if (!identity_.empty() && session.identity() != identity_)
            return session.fail(MOORAGE_WIRE_STRANGER,
                                "it is " +
                                    (session.identity().empty() ? "nobody" : session.identity()) +
                                    ", and not " + identity_);
        if (!chosen_) choose(session);
    }
    void greeted(session &session, const hello &said) override {
        if (said.channel != channel)
            return session.refuse(MOORAGE_WIRE_MALFORMED, "it answers for another channel");
        const auto kept = session.shared_from_this();
        const auto self = shared_from_this();
        std::erase(sessions_, kept);
        drop();
        exchange_.connected(
            *this, kept,
            std::min(said.message_bytes_max, context_.limits.message_bytes_max[channel]));
    }
    void failed(session &session, int32_t reason, const std::string &words) override {
        note(session.peer(), reason, words);
        if (chosen_ == &session) chosen_ = nullptr;
        const auto kept = session.shared_from_this();
        std::erase(sessions_, kept);
        asio::post(context_.io,
                   [self = shared_from_this()] { self->guard([&] { self->go_on(); }); });
    }
    void ended(session &) override {}  // a session that failed, which was already reported

private:
    template <class Work>
    void guard(Work &&work) {
        if (!short_of_memory()) context_.short_of_memory.guard(shared_from_this(), work);
    }
    void next() {
        if (ended_ || chosen_) return;
        if (waiting_.empty()) return give_up_if_done();
        const tcp::endpoint endpoint = waiting_.front();
        waiting_.erase(waiting_.begin());
        if (tried_++ >= attempts_max) {
            waiting_.clear();
            return give_up_if_done();
        }
        stagger_.expires_after(std::chrono::milliseconds(25));
        stagger_.async_wait([self = shared_from_this()](failure stopped) {
            if (!stopped && !self->waiting_.empty()) self->guard([&] { self->next(); });
        });
        attempt(endpoint);
    }
    void attempt(const tcp::endpoint &endpoint) {
        if (!context_.set.tls && !context_.set.open_network && !endpoint.address().is_loopback()) {
            note(text_of(endpoint), MOORAGE_WIRE_UNREACHABLE,
                 "beyond this machine without encryption; set security = \"tls\", or "
                 "open_network = true where everybody on the network is trusted");
            return go_on();
        }
        const auto socket = std::make_shared<tcp::socket>(context_.io);
        connecting_.push_back(socket);
        socket->async_connect(
            endpoint, [self = shared_from_this(), socket, endpoint](failure refused) {
                std::erase(self->connecting_, socket);
                if (!self->ended_)
                    self->guard([&] { self->attempted(endpoint, *socket, refused); });
            });
    }
    void attempted(const tcp::endpoint &endpoint, tcp::socket &socket, failure refused) {
        if (refused) {
            note(text_of(endpoint), MOORAGE_WIRE_UNREACHABLE, refused.message());
            return go_on();
        }
        const auto outgoing =
            std::make_shared<session>(context_, std::move(socket), /*client=*/true, *this);
        sessions_.push_back(outgoing);
        outgoing->guard([&] { outgoing->begin(duration_of(context_.limits.connect_ns)); });
    }
    void choose(session &session) {
        chosen_ = &session;
        session.greet(channel);
    }
    // Called when an attempt has failed: goes on with another ready one, or with the next address.
    void go_on() {
        if (ended_) return;
        if (!chosen_)
            for (const auto &session : sessions_)
                if (session->is_ready()) {
                    choose(*session);
                    break;
                }
        next();
    }
    void looked_up(const std::string &name, const std::vector<tcp::endpoint> &found,
                   const std::string &error) {
        --asked_;
        if (ended_) return;
        if (found.empty())
            note(name, MOORAGE_WIRE_UNREACHABLE, error.empty() ? "the name has no address" : error);
        waiting_.insert(waiting_.end(), found.begin(), found.end());
        next();
    }
    void note(const std::string &target, int32_t reason, const std::string &words) {
        // Keeps the reason that says most about the target: it answered, and the answer was wrong.
        const auto weight = [](int32_t code) {
            return code == MOORAGE_WIRE_UNREACHABLE ? 0 : code == MOORAGE_WIRE_LOST ? 1 : 2;
        };
        if (reason_ == 0 || weight(reason) > weight(reason_)) reason_ = reason;
        if (words_.size() < 512) words_ += (words_.empty() ? "" : "; ") + target + ": " + words;
    }
    void give_up_if_done() {
        if (!connecting_.empty() || !sessions_.empty() || asked_ > 0) return;
        give_up();
    }
    void too_late() {
        if (ended_) return;
        const uint64_t ms = context_.limits.connect_ns / 1'000'000;
        note("all", sessions_.empty() ? MOORAGE_WIRE_UNREACHABLE : MOORAGE_WIRE_TOO_SLOW,
             "no answer within " + std::to_string(ms) + " ms");
        give_up();
    }
    void give_up() {
        const auto self = shared_from_this();
        exchange_.gave_up(*this, reason_, words_);
        drop();
    }

    wire_context &context_;
    exchange &exchange_;
    const std::string identity_;
    asio::steady_timer deadline_, stagger_;
    std::vector<tcp::endpoint> waiting_;
    std::vector<std::shared_ptr<tcp::socket>> connecting_;
    std::vector<std::shared_ptr<session>> sessions_;
    session *chosen_ = nullptr;  // the session that is being greeted
    size_t asked_ = 0, tried_ = 0;
    int32_t reason_ = 0;
    std::string words_;
    bool ended_ = false;
};

}  // namespace tcp_wire

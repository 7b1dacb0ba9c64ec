// engine.hpp - an open instance: listeners, dials and connections by number, and the poll.
#pragma once

#include <sched.h>

#include <boost/asio/executor_work_guard.hpp>

#include <atomic>
#include <variant>

#include "../handshake_limits.hpp"
#include "dial.hpp"
#include "lobby.hpp"

namespace tcp_wire {

class engine;

struct listener final : worker, std::enable_shared_from_this<listener> {
    listener(asio::io_context &io, engine &owner) : owner(owner), acceptor(io), pause(io) {}
    void out_of_memory() override;
    engine &owner;
    uint64_t number = 0;
    tcp::acceptor acceptor;
    asio::steady_timer pause;
};

// Looks four times within `silence_ms` for connections whose data is not acknowledged.
struct watch final : worker {
    watch(asio::io_context &io, engine &owner) : owner(owner), timer(io) {}
    void out_of_memory() override;
    engine &owner;
    asio::steady_timer timer;
};

class engine final : public exchange, public reception {
public:
    // Throws std::invalid_argument if limits or certificates cannot be used.
    engine(const settings &set, const moorage_wire_limits &limits)
        : silence_(std::make_shared<watch>(context_.io, *this)), handshake_limits_(limits) {
        check(limits);
        context_.set = set, context_.limits = limits;
        if (set.tls)
            context_.tls = open_secure_context({set.certificate, set.key, set.ca, set.revoked});
        lobby_ = std::make_shared<lobby>(context_, *this, handshake_limits_, places_of(limits));
        watch_silence();
    }
    ~engine() override {
        names_.forget();
        silence_->timer.cancel();
        entries_.for_each([](entry &entry) {
            if (auto *a = std::get_if<std::shared_ptr<session>>(&entry)) (*a)->drop();
            if (auto *b = std::get_if<std::shared_ptr<dial>>(&entry)) (*b)->drop();
            if (auto *c = std::get_if<std::shared_ptr<listener>>(&entry)) shut(**c);
        });
        lobby_->close();
        for (const auto &handshake : handshakes_) handshake->drop();
        context_.lent.for_each([](block *&lent_block) { inbox::release(lent_block); });
        context_.short_of_memory.clear();
    }

    uint64_t listen(std::string_view text, std::string &bound);
    uint64_t connect(const moorage::wire_target &target);
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts, uint64_t user,
                  std::string &refused) {
        uint32_t done = MOORAGE_WIRE_GONE;
        if (const auto session = find(connection))
            session->guard([&] { done = session->send(parts, user, refused); });
        return done;
    }
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns) {
        context_.events.forget_shown();
        if (context_.events.empty()) wait_for_events(wait_ns);
        return context_.events.take(events);
    }
    void wake() {
        if (woken_.exchange(true)) return;
        try {
            asio::post(context_.io, [] {});
        } catch (const std::bad_alloc &) {  // the poll sees `woken_` after its sleep
        }
    }
    void release(uint64_t message) {
        block **slot = context_.lent.find(message);
        if (!slot) return;
        block *lent_block = *slot;
        context_.lent.remove(message);
        if (inbox::release(lent_block)) resumed_ = true;
    }
    void close(uint64_t number, bool at_once);
    void pace(uint64_t connection, uint64_t bytes_per_s) {
        if (const auto session = find(connection)) session->pace(bytes_per_s);
    }

    // Calls from sessions and dials.
    void secured(session &session) override { session.listen_for_hello(); }
    void greeted(session &, const hello &) override;
    void failed(session &, int32_t reason, const std::string &words) override;
    void ended(session &session) override {
        entries_.remove(session.number());
        --open_;
    }
    void connected(dial &, const std::shared_ptr<session> &, uint64_t send_bytes_max) override;
    void gave_up(dial &, int32_t reason, std::string words) override;
    lookups &names() override { return names_; }

    // Calls from the lobby.
    std::string refusal() override { return handshake_limits_.refusal(open_ + handshakes_.size()); }
    bool make_place() override;
    size_t under_way(const network &home) override {
        return static_cast<size_t>(
            std::count_if(handshakes_.begin(), handshakes_.end(),
                          [&](const handshake &handshake) { return handshake.home == home; }));
    }
    void receive(visitor &visitor) override;
    void turned_away(visitor &visitor, int32_t reason, std::string words) override {
        failure unknown;
        const tcp::endpoint peer = visitor.socket.remote_endpoint(unknown);
        context_.events.turned_away(visitor.listener, reason, unknown ? "" : text_of(peer),
                                    std::move(words));
    }

private:
    // A handshake that has received nothing for this time may give way to a waiting visitor.
    static constexpr std::chrono::milliseconds stall_time{100};
    static constexpr std::chrono::milliseconds turn_time{20};
    // Visitors are cheaper than handshakes, so there are 8 places for each of handshakes_max.
    static size_t places_of(const moorage_wire_limits &limits) {
        return std::min<size_t>(size_t{8} * limits.handshakes_max, 1024);
    }
    using entry = std::variant<std::monostate, std::shared_ptr<session>, std::shared_ptr<dial>,
                               std::shared_ptr<listener>>;

    static void check(const moorage_wire_limits &limits);
    std::shared_ptr<session> find(uint64_t number) {
        entry *entry = entries_.find(number);
        auto *open = entry ? std::get_if<std::shared_ptr<session>>(entry) : nullptr;
        return open ? *open : nullptr;
    }
    void wait_for_events(uint64_t wait_ns);
    bool turn();
    friend listener;
    friend watch;
    void accept(const std::shared_ptr<listener> &listener);
    void take(const std::shared_ptr<listener> &listener);
    void pause(const std::shared_ptr<listener> &listener);
    void tell_connected(int32_t kind, uint64_t listener, int32_t channel, session &session,
                        uint64_t send_bytes_max);
    void tell_closed(uint64_t number, int32_t reason, std::string words);
    static void shut(listener &listener) {
        failure ignored;
        listener.acceptor.close(ignored);
        listener.pause.cancel();
    }
    void watch_silence();
    void look_for_silence();

    wire_context context_;
    lookups names_;
    asio::executor_work_guard<asio::io_context::executor_type> working_{context_.io.get_executor()};
    const std::shared_ptr<watch> silence_;
    numbered<entry, 1> entries_;
    struct handshake {
        std::shared_ptr<session> connection;
        uint64_t listener;
        network home;
        session *operator->() const { return connection.get(); }
    };
    std::vector<handshake> handshakes_;  // incoming ones under way
    size_t open_ = 0;                    // connections and dials, without listeners
    wire::handshake_limits handshake_limits_;
    std::shared_ptr<lobby> lobby_;
    bool resumed_ = false;  // memory was released that connections wait for
    std::atomic<bool> woken_{false};
};

inline void engine::check(const moorage_wire_limits &limits) {
    const auto refuse = [](const char *problem) {
        throw std::invalid_argument(std::string("limits: ") + problem);
    };
    if (limits.size < sizeof(limits)) refuse("their size is less than that of moorage.wire/1");
    if (!limits.connections_max || !limits.handshakes_max || !limits.handshakes_per_s ||
        !limits.queue_messages_max || !limits.queue_bytes_max || !limits.connect_ns ||
        !limits.close_ns)
        refuse("each has to be at least 1");
    for (const uint64_t bytes : limits.message_bytes_max) {
        if (bytes < 1 || bytes > message_bytes_most)
            throw std::invalid_argument("limits: message_bytes_max is " + std::to_string(bytes) +
                                        ", possible are 1 .. " +
                                        std::to_string(message_bytes_most));
        if (bytes > limits.receive_bytes_max)
            refuse(
                "receive_bytes_max is less than message_bytes_max: no such message could be "
                "received");
    }
}

inline uint64_t engine::listen(std::string_view text, std::string &bound) {
    const address address = read_address(text, /*port_may_be_0=*/true);
    if (!address.numeric)
        throw std::invalid_argument("address " + address.text() +
                                    ": listening needs a number, such as 127.0.0.1 or 0.0.0.0");
    if (!context_.set.tls && !context_.set.open_network && !address.numeric->is_loopback())
        throw std::invalid_argument(
            "address " + address.text() +
            " is reached from other machines, and security is \"none\"; set security = \"tls\", or "
            "open_network = true where everybody on the network is trusted");
    const auto new_listener = std::make_shared<listener>(context_.io, *this);
    failure refused;
    const tcp::endpoint endpoint = address.endpoints()[0];
    new_listener->acceptor.open(endpoint.protocol(), refused);
    if (!refused) new_listener->acceptor.set_option(tcp::acceptor::reuse_address(true), refused);
    if (!refused) new_listener->acceptor.bind(endpoint, refused);
    if (!refused) new_listener->acceptor.listen(asio::socket_base::max_listen_connections, refused);
    if (!refused) new_listener->acceptor.non_blocking(true, refused);
    if (refused) {
        const bool taken = refused == asio::error::address_in_use;
        throw std::invalid_argument(
            "cannot listen on " + address.text() + ": " + refused.message() +
            (taken ? "; stop who has it (ss -ltnp names them), or give another address" : ""));
    }
    bound = text_of(new_listener->acceptor.local_endpoint(refused));
    new_listener->number = entries_.add(new_listener);
    context_.short_of_memory.guard(new_listener, [&] { accept(new_listener); });
    return new_listener->number;
}

inline uint64_t engine::connect(const moorage::wire_target &target) {
    if (target.channel != MOORAGE_WIRE_CALLS && target.channel != MOORAGE_WIRE_BULK)
        throw std::invalid_argument("channel " + std::to_string(target.channel) + " is unknown");
    if (!target.identity().empty() && !context_.tls)
        throw std::invalid_argument("identity " + std::string(target.identity()) +
                                    " cannot be proved without security = \"tls\"");
    std::vector<address> addresses;
    for (const char *text : target.addresses())
        addresses.push_back(read_address(text, /*port_may_be_0=*/false));
    if (addresses.empty()) throw std::invalid_argument("a target without addresses");
    if (open_ + handshakes_.size() >= context_.limits.connections_max)
        throw std::invalid_argument(std::to_string(context_.limits.connections_max) +
                                    " connections are there, the most it has");
    const auto new_dial =
        std::make_shared<dial>(context_, *this, target.channel, std::string(target.identity()));
    const uint64_t number = new_dial->number = entries_.add(new_dial);
    ++open_;
    context_.short_of_memory.guard(new_dial, [&] { new_dial->begin(addresses); });
    return number;
}

inline void engine::close(uint64_t number, bool at_once) {
    entry *entry = entries_.find(number);
    if (!entry) return;
    constexpr const char *words = "closed by this side";
    if (const auto *open = std::get_if<std::shared_ptr<session>>(entry)) {
        const auto kept = *open;
        kept->guard([&] { kept->close(at_once); });
    } else if (const auto *begun = std::get_if<std::shared_ptr<dial>>(entry)) {
        const auto kept = *begun;
        context_.short_of_memory.guard(kept, [&] {
            gave_up(*kept, MOORAGE_WIRE_BY_HOST, words);
            kept->drop();
        });
    } else if (const auto *listening = std::get_if<std::shared_ptr<listener>>(entry)) {
        const auto kept = *listening;
        shut(*kept);
        context_.short_of_memory.guard(kept, [&] {
            tell_closed(number, MOORAGE_WIRE_BY_HOST, words);
            entries_.remove(number);
        });
    }
}

// Does all work that needs no waiting, within a bound. So endless connection attempts do not stop
// events, and a call of the host returns in time, whatever a handshake costs. Returns true if there
// is an event to report.
inline bool engine::turn() {
    const auto end = std::chrono::steady_clock::now() + turn_time;
    for (int handlers = 0; handlers < 256 && context_.io.poll_one() != 0; ++handlers)
        if (std::chrono::steady_clock::now() > end) break;
    context_.short_of_memory.settle();
    return !context_.events.empty() || woken_.exchange(false);
}

inline void engine::wait_for_events(uint64_t wait_ns) {
    using clock = std::chrono::steady_clock;
    if (std::exchange(resumed_, false))
        for (const auto &weak : std::exchange(context_.starved, {}))
            if (const auto session = weak.lock()) session->guard([&] { session->resume(); });
    if (turn() || wait_ns == 0) return;
    const auto begin = clock::now(), end = begin + duration_of(wait_ns);
    const auto spin_end = std::min(end, begin + std::chrono::microseconds(context_.set.poll_us));
    while (clock::now() < spin_end) {
        if (turn()) return;
        ::sched_yield();
    }
    for (auto now = clock::now(); now < end; now = clock::now()) {
        const bool again = context_.short_of_memory.has_waiting();
        context_.io.run_one_until(again ? std::min(end, now + std::chrono::milliseconds(10)) : end);
        if (turn()) return;
    }
}

inline void engine::connected(dial &dial, const std::shared_ptr<session> &session,
                              uint64_t send_bytes_max) {
    *entries_.find(dial.number) = session;
    session->open(dial.number, send_bytes_max, dial.channel, *this);
    tell_connected(MOORAGE_WIRE_CONNECTED, 0, dial.channel, *session, send_bytes_max);
}

inline void engine::gave_up(dial &dial, int32_t reason, std::string words) {
    tell_closed(dial.number, reason, std::move(words));
    entries_.remove(dial.number);
    --open_;
}

inline void engine::tell_connected(int32_t kind, uint64_t listener, int32_t channel,
                                   session &session, uint64_t send_bytes_max) {
    moorage_wire_event event{};
    event.kind = kind, event.channel = channel, event.connection = session.number();
    event.listener = listener, event.bytes = send_bytes_max;
    event.flags = session.secure() ? MOORAGE_WIRE_SECURE : 0;
    context_.events.add(event, {session.identity(), session.peer(), ""});
}

inline void engine::tell_closed(uint64_t number, int32_t reason, std::string words) {
    moorage_wire_event event{};
    event.kind = MOORAGE_WIRE_CLOSED, event.connection = number, event.reason = reason;
    context_.events.add(event, {"", "", std::move(words)});
}

inline void engine::watch_silence() {
    silence_->timer.expires_after(
        std::chrono::milliseconds(std::max<uint64_t>(context_.set.silence_ms / 4, 1)));
    silence_->timer.async_wait([this](failure stopped) {
        if (!stopped) context_.short_of_memory.guard(silence_, [&] { look_for_silence(); });
    });
}

inline void watch::out_of_memory() { owner.watch_silence(); }

inline void engine::look_for_silence() {
    std::vector<std::shared_ptr<session>> sessions;
    entries_.for_each([&](entry &entry) {
        if (auto *open = std::get_if<std::shared_ptr<session>>(&entry)) sessions.push_back(*open);
    });
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    for (const auto &session : sessions)
        session->guard([&] { session->look_for_silence(static_cast<uint64_t>(now_ms)); });
    watch_silence();
}

}  // namespace tcp_wire

#include "accepting.inl"

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
    listener(asio::io_context &io, engine &of) : of(of), acceptor(io), pause(io) {}
    void out_of_memory() override;
    engine &of;
    uint64_t number = 0;
    tcp::acceptor acceptor;
    asio::steady_timer pause;
};

// Looks four times within `silence_ms` for connections whose data is not acknowledged.
struct watch final : worker {
    watch(asio::io_context &io, engine &of) : of(of), timer(io) {}
    void out_of_memory() override;
    engine &of;
    asio::steady_timer timer;
};

class engine final : public exchange, public reception {
public:
    // Throws std::invalid_argument if limits or certificates cannot be used.
    engine(const settings &set, const moorage_wire_limits &limits)
        : silence_(std::make_shared<watch>(desk_.io, *this)), beginnings_(limits) {
        check(limits);
        desk_.set = set, desk_.limits = limits;
        if (set.tls) desk_.tls.emplace(set.certificate, set.key, set.ca, set.revoked);
        lobby_ = std::make_shared<lobby>(desk_, *this, beginnings_, places_of(limits));
        watch_silence();
    }
    ~engine() override {
        names_.forget();
        silence_->timer.cancel();
        entries_.each([](entry &one) {
            if (auto *a = std::get_if<std::shared_ptr<session>>(&one)) (*a)->drop();
            if (auto *b = std::get_if<std::shared_ptr<dial>>(&one)) (*b)->drop();
            if (auto *c = std::get_if<std::shared_ptr<listener>>(&one)) shut(**c);
        });
        lobby_->close();
        for (const auto &one : handshakes_) one->drop();
        desk_.lent.each([](block *&one) { inbox::release(one); });
        desk_.short_of_memory.clear();
    }

    uint64_t listen(std::string_view text, std::string &bound);
    uint64_t connect(const moorage::wire_target &target);
    uint32_t send(uint64_t to, std::span<const moorage_wire_part> parts, uint64_t user,
                  std::string &refused) {
        uint32_t done = MOORAGE_WIRE_GONE;
        if (const auto one = find(to)) one->guard([&] { done = one->send(parts, user, refused); });
        return done;
    }
    uint32_t poll(std::span<moorage_wire_event> out, uint64_t wait_ns) {
        desk_.events.forget_shown();
        if (desk_.events.empty()) move(wait_ns);
        return desk_.events.take(out);
    }
    void wake() {
        if (woken_.exchange(true)) return;
        try {
            asio::post(desk_.io, [] {});
        } catch (const std::bad_alloc &) {  // the poll sees `woken_` after its sleep
        }
    }
    void release(uint64_t message) {
        block **one = desk_.lent.find(message);
        if (!one) return;
        block *in = *one;
        desk_.lent.remove(message);
        if (inbox::release(in)) resumed_ = true;
    }
    void close(uint64_t number, bool at_once);
    void pace(uint64_t connection, uint64_t bytes_per_s) {
        if (const auto one = find(connection)) one->pace(bytes_per_s);
    }

    // Calls from sessions and dials.
    void secured(session &one) override { one.listen_for_hello(); }
    void greeted(session &, const hello &) override;
    void failed(session &, int32_t reason, const std::string &words) override;
    void over(session &one) override {
        entries_.remove(one.number());
        --open_;
    }
    void connected(dial &, const std::shared_ptr<session> &, uint64_t send_bytes_max) override;
    void gave_up(dial &, int32_t reason, std::string words) override;
    lookups &names() override { return names_; }

    // Calls from the lobby.
    std::string refuses() override { return beginnings_.refuses(open_ + handshakes_.size()); }
    bool make_place() override;
    size_t under_way(const network &home) override {
        return static_cast<size_t>(
            std::count_if(handshakes_.begin(), handshakes_.end(),
                          [&](const handshake &one) { return one.home == home; }));
    }
    void receive(visitor &who) override;
    void turned_away(visitor &who, int32_t reason, std::string words) override {
        failure unknown;
        const tcp::endpoint peer = who.socket.remote_endpoint(unknown);
        desk_.events.turned_away(who.listener, reason, unknown ? "" : text_of(peer),
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
        entry *one = entries_.find(number);
        auto *open = one ? std::get_if<std::shared_ptr<session>>(one) : nullptr;
        return open ? *open : nullptr;
    }
    void move(uint64_t wait_ns);
    bool turn();
    friend listener;
    friend watch;
    void accept(const std::shared_ptr<listener> &at);
    void take(const std::shared_ptr<listener> &at);
    void pause(const std::shared_ptr<listener> &at);
    void tell_connected(int32_t kind, uint64_t listener, int32_t channel, session &one,
                        uint64_t send_bytes_max);
    void tell_closed(uint64_t number, int32_t reason, std::string words);
    static void shut(listener &one) {
        failure ignored;
        one.acceptor.close(ignored);
        one.pause.cancel();
    }
    void watch_silence();
    void look_for_silence();

    desk desk_;
    lookups names_;
    asio::executor_work_guard<asio::io_context::executor_type> working_{desk_.io.get_executor()};
    const std::shared_ptr<watch> silence_;
    numbered<entry, 1> entries_;
    struct handshake {
        std::shared_ptr<session> with;
        uint64_t listener;
        network home;
        session *operator->() const { return with.get(); }
    };
    std::vector<handshake> handshakes_;  // incoming ones under way
    size_t open_ = 0;                    // connections and dials, without listeners
    wire::handshake_limits beginnings_;
    std::shared_ptr<lobby> lobby_;
    bool resumed_ = false;  // memory was released that connections wait for
    std::atomic<bool> woken_{false};
};

inline void engine::check(const moorage_wire_limits &limits) {
    const auto refuse = [](const char *what) {
        throw std::invalid_argument(std::string("limits: ") + what);
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
    const address at = read_address(text, /*port_may_be_0=*/true);
    if (!at.numeric)
        throw std::invalid_argument("address " + at.text() +
                                    ": listening needs a number, such as 127.0.0.1 or 0.0.0.0");
    if (!desk_.set.tls && !desk_.set.open_network && !at.numeric->is_loopback())
        throw std::invalid_argument(
            "address " + at.text() +
            " is reached from other machines, and security is \"none\"; set security = \"tls\", or "
            "open_network = true where everybody on the network is trusted");
    const auto made = std::make_shared<listener>(desk_.io, *this);
    failure refused;
    const tcp::endpoint where = at.endpoints()[0];
    made->acceptor.open(where.protocol(), refused);
    if (!refused) made->acceptor.set_option(tcp::acceptor::reuse_address(true), refused);
    if (!refused) made->acceptor.bind(where, refused);
    if (!refused) made->acceptor.listen(asio::socket_base::max_listen_connections, refused);
    if (!refused) made->acceptor.non_blocking(true, refused);
    if (refused) {
        const bool taken = refused == asio::error::address_in_use;
        throw std::invalid_argument(
            "cannot listen on " + at.text() + ": " + refused.message() +
            (taken ? "; stop who has it (ss -ltnp names them), or give another address" : ""));
    }
    bound = text_of(made->acceptor.local_endpoint(refused));
    made->number = entries_.add(made);
    desk_.short_of_memory.guard(made, [&] { accept(made); });
    return made->number;
}

inline uint64_t engine::connect(const moorage::wire_target &target) {
    if (target.channel != MOORAGE_WIRE_CALLS && target.channel != MOORAGE_WIRE_BULK)
        throw std::invalid_argument("channel " + std::to_string(target.channel) + " is unknown");
    if (!target.identity().empty() && !desk_.tls)
        throw std::invalid_argument("identity " + std::string(target.identity()) +
                                    " cannot be proved without security = \"tls\"");
    std::vector<address> all;
    for (const char *text : target.addresses())
        all.push_back(read_address(text, /*port_may_be_0=*/false));
    if (all.empty()) throw std::invalid_argument("a target without addresses");
    if (open_ + handshakes_.size() >= desk_.limits.connections_max)
        throw std::invalid_argument(std::to_string(desk_.limits.connections_max) +
                                    " connections are there, the most it has");
    const auto made =
        std::make_shared<dial>(desk_, *this, target.channel, std::string(target.identity()));
    const uint64_t number = made->number = entries_.add(made);
    ++open_;
    desk_.short_of_memory.guard(made, [&] { made->begin(all); });
    return number;
}

inline void engine::close(uint64_t number, bool at_once) {
    entry *one = entries_.find(number);
    if (!one) return;
    constexpr const char *words = "closed by this side";
    if (const auto *open = std::get_if<std::shared_ptr<session>>(one)) {
        const auto kept = *open;
        kept->guard([&] { kept->close(at_once); });
    } else if (const auto *begun = std::get_if<std::shared_ptr<dial>>(one)) {
        const auto kept = *begun;
        desk_.short_of_memory.guard(kept, [&] {
            gave_up(*kept, MOORAGE_WIRE_BY_HOST, words);
            kept->drop();
        });
    } else if (const auto *there = std::get_if<std::shared_ptr<listener>>(one)) {
        const auto kept = *there;
        shut(*kept);
        desk_.short_of_memory.guard(kept, [&] {
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
    for (int handlers = 0; handlers < 256 && desk_.io.poll_one() != 0; ++handlers)
        if (std::chrono::steady_clock::now() > end) break;
    desk_.short_of_memory.settle();
    return !desk_.events.empty() || woken_.exchange(false);
}

inline void engine::move(uint64_t wait_ns) {
    using clock = std::chrono::steady_clock;
    if (std::exchange(resumed_, false))
        for (const auto &weak : std::exchange(desk_.starved, {}))
            if (const auto there = weak.lock()) there->guard([&] { there->resume(); });
    if (turn() || wait_ns == 0) return;
    const auto begin = clock::now(), end = begin + duration_of(wait_ns);
    const auto spin_end = std::min(end, begin + std::chrono::microseconds(desk_.set.poll_us));
    while (clock::now() < spin_end) {
        if (turn()) return;
        ::sched_yield();
    }
    for (auto now = clock::now(); now < end; now = clock::now()) {
        const bool again = desk_.short_of_memory.any();
        desk_.io.run_one_until(again ? std::min(end, now + std::chrono::milliseconds(10)) : end);
        if (turn()) return;
    }
}

inline void engine::connected(dial &by, const std::shared_ptr<session> &one,
                              uint64_t send_bytes_max) {
    *entries_.find(by.number) = one;
    one->open(by.number, send_bytes_max, by.channel, *this);
    tell_connected(MOORAGE_WIRE_CONNECTED, 0, by.channel, *one, send_bytes_max);
}

inline void engine::gave_up(dial &by, int32_t reason, std::string words) {
    tell_closed(by.number, reason, std::move(words));
    entries_.remove(by.number);
    --open_;
}

inline void engine::tell_connected(int32_t kind, uint64_t listener, int32_t channel, session &one,
                                   uint64_t send_bytes_max) {
    moorage_wire_event told{};
    told.kind = kind, told.channel = channel, told.connection = one.number();
    told.listener = listener, told.bytes = send_bytes_max;
    told.flags = one.secure() ? MOORAGE_WIRE_SECURE : 0;
    desk_.events.add(told, {one.identity(), one.peer(), ""});
}

inline void engine::tell_closed(uint64_t number, int32_t reason, std::string words) {
    moorage_wire_event told{};
    told.kind = MOORAGE_WIRE_CLOSED, told.connection = number, told.reason = reason;
    desk_.events.add(told, {"", "", std::move(words)});
}

inline void engine::watch_silence() {
    silence_->timer.expires_after(
        std::chrono::milliseconds(std::max<uint64_t>(desk_.set.silence_ms / 4, 1)));
    silence_->timer.async_wait([this](failure stopped) {
        if (!stopped) desk_.short_of_memory.guard(silence_, [&] { look_for_silence(); });
    });
}

inline void watch::out_of_memory() { of.watch_silence(); }

inline void engine::look_for_silence() {
    std::vector<std::shared_ptr<session>> all;
    entries_.each([&](entry &one) {
        if (auto *open = std::get_if<std::shared_ptr<session>>(&one)) all.push_back(*open);
    });
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    for (const auto &one : all)
        one->guard([&] { one->look_for_silence(static_cast<uint64_t>(now_ms)); });
    watch_silence();
}

}  // namespace tcp_wire

#include "accepting.inl"

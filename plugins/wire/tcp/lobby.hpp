// lobby.hpp - peers that have connected but have no handshake: each costs a socket and an entry.
//
//   lobby_->enter(socket, listener) -> its first byte -> reception::receive, when there is a place
//
// A silent visitor gives way to a new one: first the network with most silent visitors, then its
// oldest. So silent sockets keep no visitor out, however many there are. A visitor that has sent a
// byte waits for a place among the handshakes and for its share of handshakes_per_s. The network
// with fewest handshakes under way is first. An IPv4 address is its own network. IPv6 networks are
// the first 64 bits.
#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <map>

#include <boost/asio/steady_timer.hpp>

#include "../handshake_limits.hpp"
#include "desk.hpp"
#include "outbox.hpp"

namespace tcp_wire {

using network = std::array<unsigned char, 16>;

inline network network_of(const asio::ip::address &address) {
    network home{};
    if (address.is_v4()) {
        const auto bytes = address.to_v4().to_bytes();
        std::copy(bytes.begin(), bytes.end(), home.begin() + 8);
        return home;
    }
    const auto bytes = address.to_v6().to_bytes();
    std::copy_n(bytes.begin(), address.to_v6().is_v4_mapped() ? 16 : 8, home.begin());
    return home;
}

class lobby;

struct visitor final : worker, std::enable_shared_from_this<visitor> {
    visitor(lobby &owner, tcp::socket &&accepted, uint64_t listener)
        : owner(owner), socket(std::move(accepted)), listener(listener) {
        failure unknown;
        socket.non_blocking(true, unknown);
        home = network_of(socket.remote_endpoint(unknown).address());
    }
    void out_of_memory() override;

    lobby &owner;
    tcp::socket socket;
    const uint64_t listener;
    network home;
    const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
    bool spoke = false;
};

// The services of the engine for visitors.
class reception {
public:
    virtual ~reception() = default;
    // Why no handshake may begin while the current connections stay; empty: one may.
    virtual std::string refusal() = 0;
    // Whether the handshakes have a place. A stalled one may give way.
    virtual bool make_place() = 0;
    virtual size_t under_way(const network &home) = 0;
    // Begins the handshake of a visitor, who then has left the lobby.
    virtual void receive(visitor &visitor) = 0;
    virtual void turned_away(visitor &visitor, int32_t reason, std::string words) = 0;
};

class lobby final : public worker, public std::enable_shared_from_this<lobby> {
public:
    // All are borrowed. `places`: for visitors, at least 1.
    lobby(wire_context &context, reception &reception, wire::handshake_limits &limits,
          size_t places)
        : context_(context),
          reception_(reception),
          handshake_limits_(limits),
          places_(places),
          tick_(context.io) {}

    void enter(tcp::socket &&socket, uint64_t listener) {
        const auto newcomer = std::make_shared<visitor>(*this, std::move(socket), listener);
        if (waiting_.size() >= places_ && !make_room(*newcomer)) return;
        counts &home_counts =
            counts_[newcomer->home];  // both may find no memory, but nothing has changed yet
        waiting_.push_back(newcomer);
        ++home_counts.total, ++home_counts.silent;
        context_.short_of_memory.guard(newcomer, [&] { listen_to(*newcomer); });
        context_.short_of_memory.guard(shared_from_this(), [&] {
            if (!waiting_.empty() && !ticking_) tick();
        });
    }
    // A silent visitor gives its descriptor back. Returns false if there is none.
    bool give_way() {
        const auto oldest = oldest_silent();
        if (oldest) send_away(*oldest, MOORAGE_WIRE_TOO_MANY, "no file descriptor is left for it");
        return oldest != nullptr;
    }
    void send_away(visitor &visitor, int32_t reason, const std::string &words) {
        const auto kept = visitor.shared_from_this();  // the lobby may hold the only reference
        leave(visitor);
        context_.short_of_memory.guard(kept, [&] {
            reception_.turned_away(visitor, reason, words);
            say_goodbye(visitor.socket, reason, words);
        });
    }
    // Called when the instance ends.
    void close() {
        tick_.cancel();
        failure ignored;
        for (const auto &visitor : waiting_) visitor->socket.close(ignored);
        waiting_.clear();
        counts_.clear();
    }
    void out_of_memory() override {
        ticking_ = false;
        if (!waiting_.empty()) tick();
    }

private:
    struct counts {
        size_t total = 0, silent = 0;
    };
    static constexpr std::chrono::milliseconds tick_time{10};

    void leave(const visitor &visitor) {
        const auto position =
            std::find_if(waiting_.begin(), waiting_.end(),
                         [&](const auto &waiting) { return waiting.get() == &visitor; });
        if (position == waiting_.end()) return;
        const auto home_counts = counts_.find(visitor.home);
        home_counts->second.silent -= visitor.spoke ? 0 : 1;
        if (--home_counts->second.total == 0) counts_.erase(home_counts);
        waiting_.erase(position);
    }
    // Without a session. Reads what the peer sent: a socket that closes with unread bytes takes
    // back what it has sent.
    void say_goodbye(tcp::socket &socket, int32_t reason, const std::string &words) {
        if (!socket.is_open()) return;
        failure ignored;
        if (!context_.tls) {
            unsigned char nowhere[4096];
            while (::recv(socket.native_handle(), nowhere, sizeof(nowhere), MSG_DONTWAIT) > 0) {
            }
            outbox goodbye;
            stream plain_stream(socket.native_handle());
            goodbye.add(frame::goodbye, written_goodbye(reason, words));
            goodbye.write(plain_stream, [](uint64_t) {});
        }
        socket.close(ignored);
    }
    std::shared_ptr<visitor> oldest_silent() const {
        const counts *most = nullptr;
        network home{};
        for (const auto &[candidate, count] : counts_)
            if (count.silent > (most ? most->silent : 0)) most = &count, home = candidate;
        if (!most) return nullptr;
        for (const auto &visitor : waiting_)
            if (!visitor->spoke && visitor->home == home) return visitor;
        return nullptr;
    }
    // Returns false if all visitors have spoken. The newcomer was then turned away.
    bool make_room(visitor &newcomer) {
        const std::string most = std::to_string(places_);
        if (const auto silent = oldest_silent()) {
            send_away(*silent, MOORAGE_WIRE_TOO_MANY,
                      most +
                          " connections that have not greeted are there, the most at one time: "
                          "the oldest gives way");
            return true;
        }
        const std::string full =
            most + " connections wait for their handshake, the most at one time; try again";
        const auto biggest = std::max_element(
            counts_.begin(), counts_.end(),
            [](const auto &a, const auto &b) { return a.second.total < b.second.total; });
        const auto newcomer_counts = counts_.find(newcomer.home);
        if (newcomer_counts != counts_.end() &&
            newcomer_counts->second.total >= biggest->second.total) {
            reception_.turned_away(newcomer, MOORAGE_WIRE_TOO_MANY, full);
            say_goodbye(newcomer.socket, MOORAGE_WIRE_TOO_MANY, full);
            return false;
        }
        const auto latest =
            std::find_if(waiting_.rbegin(), waiting_.rend(),
                         [&](const auto &visitor) { return visitor->home == biggest->first; });
        send_away(**latest, MOORAGE_WIRE_TOO_MANY, full);
        return true;
    }
    // Waits for the visitor's first byte, without taking it.
    void listen_to(visitor &visitor) {
        unsigned char first;
        const ssize_t got =
            ::recv(visitor.socket.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0) return spoken(visitor);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            visitor.socket.async_wait(
                tcp::socket::wait_read, [self = visitor.shared_from_this()](failure stopped) {
                    if (stopped || !self->socket.is_open() || self->short_of_memory()) return;
                    lobby &owner = self->owner;
                    owner.context_.short_of_memory.guard(self, [&] { owner.listen_to(*self); });
                });
            return;
        }
        send_away(visitor, MOORAGE_WIRE_LOST,
                  "the peer hung up instead of a greeting; is security the same on both sides?");
    }
    void spoken(visitor &visitor) {
        visitor.spoke = true;
        --counts_[visitor.home].silent;
        admit();
    }
    // Begins handshakes while there are places and turns.
    void admit() {
        for (auto next = first_in_turn(); next; next = first_in_turn()) {
            if (const std::string reason = reception_.refusal(); !reason.empty()) {
                send_away(*next, MOORAGE_WIRE_TOO_MANY, reason);
                continue;
            }
            if (!reception_.make_place() || !handshake_limits_.take_turn()) return;
            context_.short_of_memory.guard(next, [&] {
                reception_.receive(*next);
                leave(*next);
            });
        }
    }
    std::shared_ptr<visitor> first_in_turn() const {
        std::shared_ptr<visitor> first;
        size_t fewest = SIZE_MAX;
        for (const auto &visitor : waiting_) {
            if (!visitor->spoke || visitor->short_of_memory()) continue;
            if (counts_.size() == 1) return visitor;
            const size_t under_way = reception_.under_way(visitor->home);
            if (under_way < fewest) first = visitor, fewest = under_way;
        }
        return first;
    }
    void tick() {
        tick_.expires_after(tick_time);
        tick_.async_wait([self = shared_from_this()](failure stopped) {
            if (!stopped) self->context_.short_of_memory.guard(self, [&] { self->tend(); });
        });
        ticking_ = true;
    }
    void tend() {
        ticking_ = false;
        const auto now = std::chrono::steady_clock::now();
        while (!waiting_.empty() &&
               now - waiting_.front()->since >= duration_of(context_.limits.connect_ns)) {
            visitor &first = *waiting_.front();
            send_away(first, first.spoke ? MOORAGE_WIRE_TOO_MANY : MOORAGE_WIRE_TOO_SLOW,
                      first.spoke ? "its turn for a handshake did not come in time; try again"
                                  : "no greeting in time");
        }
        admit();
        if (!waiting_.empty()) tick();
    }

    friend visitor;
    wire_context &context_;
    reception &reception_;
    wire::handshake_limits &handshake_limits_;
    const size_t places_;
    std::vector<std::shared_ptr<visitor>> waiting_;  // in order of arrival
    std::map<network, counts> counts_;               // counts of these
    asio::steady_timer tick_;
    bool ticking_ = false;
};

inline void visitor::out_of_memory() { owner.send_away(*this, MOORAGE_WIRE_TOO_MANY, "no memory"); }

}  // namespace tcp_wire

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
    network made{};
    if (address.is_v4()) {
        const auto bytes = address.to_v4().to_bytes();
        std::copy(bytes.begin(), bytes.end(), made.begin() + 8);
        return made;
    }
    const auto bytes = address.to_v6().to_bytes();
    std::copy_n(bytes.begin(), address.to_v6().is_v4_mapped() ? 16 : 8, made.begin());
    return made;
}

class lobby;

struct visitor final : worker, std::enable_shared_from_this<visitor> {
    visitor(lobby &where, tcp::socket &&from, uint64_t listener)
        : where(where), socket(std::move(from)), listener(listener) {
        failure unknown;
        socket.non_blocking(true, unknown);
        home = network_of(socket.remote_endpoint(unknown).address());
    }
    void out_of_memory() override;

    lobby &where;
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
    virtual std::string refuses() = 0;
    // Whether the handshakes have a place. A stalled one may give way.
    virtual bool make_place() = 0;
    virtual size_t under_way(const network &of) = 0;
    // Begins the handshake of a visitor, who then has left the lobby.
    virtual void receive(visitor &who) = 0;
    virtual void turned_away(visitor &who, int32_t reason, std::string words) = 0;
};

class lobby final : public worker, public std::enable_shared_from_this<lobby> {
public:
    // All are borrowed. `places`: for visitors, at least 1.
    lobby(desk &with, reception &by, wire::handshake_limits &beginnings, size_t places)
        : desk_(with), reception_(by), beginnings_(beginnings), places_(places), tick_(with.io) {}

    void enter(tcp::socket &&socket, uint64_t listener) {
        const auto who = std::make_shared<visitor>(*this, std::move(socket), listener);
        if (waiting_.size() >= places_ && !make_room(*who)) return;
        counts &of = counts_[who->home];  // both may find no memory, but nothing has changed yet
        waiting_.push_back(who);
        ++of.all, ++of.silent;
        desk_.short_of_memory.guard(who, [&] { listen_to(*who); });
        desk_.short_of_memory.guard(shared_from_this(), [&] {
            if (!waiting_.empty() && !ticking_) tick();
        });
    }
    // A silent visitor gives its descriptor back. Returns false if there is none.
    bool give_way() {
        const auto who = oldest_silent();
        if (who) send_away(*who, MOORAGE_WIRE_TOO_MANY, "no file descriptor is left for it");
        return who != nullptr;
    }
    void send_away(visitor &who, int32_t reason, const std::string &words) {
        const auto kept = who.shared_from_this();  // the lobby may hold the only reference
        leave(who);
        desk_.short_of_memory.guard(kept, [&] {
            reception_.turned_away(who, reason, words);
            say_goodbye(who.socket, reason, words);
        });
    }
    // Called when the instance ends.
    void close() {
        tick_.cancel();
        failure ignored;
        for (const auto &who : waiting_) who->socket.close(ignored);
        waiting_.clear();
        counts_.clear();
    }
    void out_of_memory() override {
        ticking_ = false;
        if (!waiting_.empty()) tick();
    }

private:
    struct counts {
        size_t all = 0, silent = 0;
    };
    static constexpr std::chrono::milliseconds tick_time{10};

    void leave(const visitor &who) {
        const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const auto &one) { return one.get() == &who; });
        if (at == waiting_.end()) return;
        const auto of = counts_.find(who.home);
        of->second.silent -= who.spoke ? 0 : 1;
        if (--of->second.all == 0) counts_.erase(of);
        waiting_.erase(at);
    }
    // Without a session. Reads what the peer sent: a socket that closes with unread bytes takes
    // back what it has sent.
    void say_goodbye(tcp::socket &socket, int32_t reason, const std::string &words) {
        if (!socket.is_open()) return;
        failure ignored;
        if (!desk_.tls) {
            unsigned char nowhere[4096];
            while (::recv(socket.native_handle(), nowhere, sizeof(nowhere), MSG_DONTWAIT) > 0) {
            }
            outbox goodbye;
            stream to(socket.native_handle());
            goodbye.add(frame::goodbye, written_goodbye(reason, words));
            goodbye.write(to, [](uint64_t) {});
        }
        socket.close(ignored);
    }
    std::shared_ptr<visitor> oldest_silent() const {
        const counts *most = nullptr;
        network home{};
        for (const auto &[which, count] : counts_)
            if (count.silent > (most ? most->silent : 0)) most = &count, home = which;
        if (!most) return nullptr;
        for (const auto &who : waiting_)
            if (!who->spoke && who->home == home) return who;
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
            [](const auto &a, const auto &b) { return a.second.all < b.second.all; });
        const auto own = counts_.find(newcomer.home);
        if (own != counts_.end() && own->second.all >= biggest->second.all) {
            reception_.turned_away(newcomer, MOORAGE_WIRE_TOO_MANY, full);
            say_goodbye(newcomer.socket, MOORAGE_WIRE_TOO_MANY, full);
            return false;
        }
        const auto latest = std::find_if(waiting_.rbegin(), waiting_.rend(), [&](const auto &who) {
            return who->home == biggest->first;
        });
        send_away(**latest, MOORAGE_WIRE_TOO_MANY, full);
        return true;
    }
    // Waits for the visitor's first byte, without taking it.
    void listen_to(visitor &who) {
        unsigned char first;
        const ssize_t got = ::recv(who.socket.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0) return spoken(who);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            who.socket.async_wait(
                tcp::socket::wait_read, [self = who.shared_from_this()](failure stopped) {
                    if (stopped || !self->socket.is_open() || self->short_of_memory()) return;
                    lobby &at = self->where;
                    at.desk_.short_of_memory.guard(self, [&] { at.listen_to(*self); });
                });
            return;
        }
        send_away(who, MOORAGE_WIRE_LOST,
                  "the peer hung up instead of a greeting; is security the same on both sides?");
    }
    void spoken(visitor &who) {
        who.spoke = true;
        --counts_[who.home].silent;
        admit();
    }
    // Begins handshakes while there are places and turns.
    void admit() {
        for (auto next = first_in_turn(); next; next = first_in_turn()) {
            if (const std::string why = reception_.refuses(); !why.empty()) {
                send_away(*next, MOORAGE_WIRE_TOO_MANY, why);
                continue;
            }
            if (!reception_.make_place() || !beginnings_.take_turn()) return;
            desk_.short_of_memory.guard(next, [&] {
                reception_.receive(*next);
                leave(*next);
            });
        }
    }
    std::shared_ptr<visitor> first_in_turn() const {
        std::shared_ptr<visitor> first;
        size_t fewest = SIZE_MAX;
        for (const auto &who : waiting_) {
            if (!who->spoke || who->short_of_memory()) continue;
            if (counts_.size() == 1) return who;
            const size_t under_way = reception_.under_way(who->home);
            if (under_way < fewest) first = who, fewest = under_way;
        }
        return first;
    }
    void tick() {
        tick_.expires_after(tick_time);
        tick_.async_wait([self = shared_from_this()](failure stopped) {
            if (!stopped) self->desk_.short_of_memory.guard(self, [&] { self->tend(); });
        });
        ticking_ = true;
    }
    void tend() {
        ticking_ = false;
        const auto now = std::chrono::steady_clock::now();
        while (!waiting_.empty() &&
               now - waiting_.front()->since >= duration_of(desk_.limits.connect_ns)) {
            visitor &first = *waiting_.front();
            send_away(first, first.spoke ? MOORAGE_WIRE_TOO_MANY : MOORAGE_WIRE_TOO_SLOW,
                      first.spoke ? "its turn for a handshake did not come in time; try again"
                                  : "no greeting in time");
        }
        admit();
        if (!waiting_.empty()) tick();
    }

    friend visitor;
    desk &desk_;
    reception &reception_;
    wire::handshake_limits &beginnings_;
    const size_t places_;
    std::vector<std::shared_ptr<visitor>> waiting_;  // in order of arrival
    std::map<network, counts> counts_;               // counts of these
    asio::steady_timer tick_;
    bool ticking_ = false;
};

inline void visitor::out_of_memory() { where.send_away(*this, MOORAGE_WIRE_TOO_MANY, "no memory"); }

}  // namespace tcp_wire

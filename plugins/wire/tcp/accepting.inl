// accepting.inl - how an engine accepts connections: lobby, then handshake, then connection.
#pragma once

namespace tcp_wire {

inline void engine::accept(const std::shared_ptr<listener> &at) {
    at->acceptor.async_wait(tcp::acceptor::wait_read, [this, at](failure stopped) {
        if (stopped || !at->acceptor.is_open()) return;
        desk_.short_of_memory.guard(at, [&] { take(at); });
    });
}

// Takes the connected sockets and waits for the next one.
inline void engine::take(const std::shared_ptr<listener> &at) {
    for (int count = 0; count < 64; ++count) {
        failure refused;
        tcp::socket socket(desk_.io);
        at->acceptor.accept(socket, refused);
        if (refused == asio::error::would_block || refused == asio::error::try_again) break;
        if (refused == asio::error::connection_aborted) continue;
        if (!refused) {
            lobby_->enter(std::move(socket), at->number);
        } else if (refused != asio::error::no_descriptors || !lobby_->give_way()) {
            desk_.events.turned_away(at->number, MOORAGE_WIRE_TOO_MANY, "",
                                     "cannot accept: " + refused.message());
            return pause(at);
        }
    }
    accept(at);
}

// Accepts no connection for a tenth of a second.
inline void engine::pause(const std::shared_ptr<listener> &at) {
    at->pause.expires_after(std::chrono::milliseconds(100));
    at->pause.async_wait([this, at](failure stopped) {
        if (stopped || !at->acceptor.is_open()) return;
        desk_.short_of_memory.guard(at, [&] { accept(at); });
    });
}

inline void listener::out_of_memory() {
    if (!acceptor.is_open()) return of.close(number, /*at_once=*/true);
    of.desk_.events.turned_away(number, MOORAGE_WIRE_TOO_MANY, "", "no memory");
    of.accept(shared_from_this());
}

// Among the stalled handshakes, one gives way: first by the network with most handshakes, then by
// the longest stall.
inline bool engine::make_place() {
    if (handshakes_.size() < desk_.limits.handshakes_max) return true;
    const auto now = std::chrono::steady_clock::now();
    const handshake *slowest = nullptr;
    size_t most = 0;
    for (const handshake &one : handshakes_) {
        if (now - one->heard() < stall_time) continue;
        const size_t beside = under_way(one.home);
        if (slowest && (beside < most || (beside == most && one->heard() >= (*slowest)->heard())))
            continue;
        slowest = &one, most = beside;
    }
    if (!slowest) return false;
    const std::shared_ptr<session> gone = slowest->with;
    failed(*gone, MOORAGE_WIRE_TOO_MANY,
           "it said nothing during its handshake, and gives way to others");
    gone->drop();
    return true;
}

inline void engine::receive(visitor &who) {
    const auto gone = std::chrono::steady_clock::now() - who.since;
    const auto made =
        std::make_shared<session>(desk_, std::move(who.socket), /*client=*/false, *this);
    handshakes_.push_back({made, who.listener, who.home});
    made->guard([&] { made->begin(duration_of(desk_.limits.connect_ns) - gone); });
}

inline void engine::greeted(session &one, const hello &said) {
    const auto at = std::find_if(handshakes_.begin(), handshakes_.end(),
                                 [&](const handshake &h) { return h.with.get() == &one; });
    const uint64_t number = entries_.add(at->with);
    const handshake kept = *at;
    handshakes_.erase(at);
    ++open_;
    const uint64_t bytes =
        std::min(said.message_bytes_max, desk_.limits.message_bytes_max[said.channel]);
    one.open(number, bytes, said.channel, *this);
    one.hush();
    tell_connected(MOORAGE_WIRE_ACCEPTED, kept.listener, said.channel, one, bytes);
    one.hush(false);
    one.write_hello(said.channel);
}

inline void engine::failed(session &one, int32_t reason, const std::string &words) {
    const auto at = std::find_if(handshakes_.begin(), handshakes_.end(),
                                 [&](const handshake &h) { return h.with.get() == &one; });
    if (at == handshakes_.end()) return;
    desk_.events.turned_away(at->listener, reason, one.peer(), words);
    handshakes_.erase(at);
}

}  // namespace tcp_wire

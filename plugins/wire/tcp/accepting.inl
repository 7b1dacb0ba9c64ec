// accepting.inl - how an engine accepts connections: lobby, then handshake, then connection.
#pragma once

namespace tcp_wire {

inline void engine::accept(const std::shared_ptr<listener> &listener) {
    listener->acceptor.async_wait(tcp::acceptor::wait_read, [this, listener](failure stopped) {
        if (stopped || !listener->acceptor.is_open()) return;
        context_.short_of_memory.guard(listener, [&] { take(listener); });
    });
}

// Takes the connected sockets and waits for the next one.
inline void engine::take(const std::shared_ptr<listener> &listener) {
    for (int count = 0; count < 64; ++count) {
        failure refused;
        tcp::socket socket(context_.io);
        listener->acceptor.accept(socket, refused);
        if (refused == asio::error::would_block || refused == asio::error::try_again) break;
        if (refused == asio::error::connection_aborted) continue;
        if (!refused) {
            lobby_->enter(std::move(socket), listener->number);
        } else if (refused != asio::error::no_descriptors || !lobby_->give_way()) {
            context_.events.turned_away(listener->number, MOORAGE_WIRE_TOO_MANY, "",
                                        "cannot accept: " + refused.message());
            return pause(listener);
        }
    }
    accept(listener);
}

// Accepts no connection for a tenth of a second.
inline void engine::pause(const std::shared_ptr<listener> &listener) {
    listener->pause.expires_after(std::chrono::milliseconds(100));
    listener->pause.async_wait([this, listener](failure stopped) {
        if (stopped || !listener->acceptor.is_open()) return;
        context_.short_of_memory.guard(listener, [&] { accept(listener); });
    });
}

inline void listener::out_of_memory() {
    if (!acceptor.is_open()) return owner.close(number, /*at_once=*/true);
    owner.context_.events.turned_away(number, MOORAGE_WIRE_TOO_MANY, "", "no memory");
    owner.accept(shared_from_this());
}

// Among the stalled handshakes, one gives way: first by the network with most handshakes, then by
// the longest stall.
inline bool engine::make_place() {
    if (handshakes_.size() < context_.limits.handshakes_max) return true;
    const auto now = std::chrono::steady_clock::now();
    const handshake *slowest = nullptr;
    size_t most = 0;
    for (const handshake &handshake : handshakes_) {
        if (now - handshake->last_heard() < stall_time) continue;
        const size_t beside = under_way(handshake.home);
        if (slowest && (beside < most ||
                        (beside == most && handshake->last_heard() >= (*slowest)->last_heard())))
            continue;
        slowest = &handshake, most = beside;
    }
    if (!slowest) return false;
    const std::shared_ptr<session> gone = slowest->connection;
    failed(*gone, MOORAGE_WIRE_TOO_MANY,
           "it said nothing during its handshake, and gives way to others");
    gone->drop();
    return true;
}

inline void engine::receive(visitor &visitor) {
    const auto elapsed = std::chrono::steady_clock::now() - visitor.since;
    const auto incoming =
        std::make_shared<session>(context_, std::move(visitor.socket), /*client=*/false, *this);
    handshakes_.push_back({incoming, visitor.listener, visitor.home});
    incoming->guard([&] { incoming->begin(duration_of(context_.limits.connect_ns) - elapsed); });
}

inline void engine::greeted(session &session, const hello &said) {
    const auto position =
        std::find_if(handshakes_.begin(), handshakes_.end(),
                     [&](const handshake &h) { return h.connection.get() == &session; });
    const uint64_t number = entries_.add(position->connection);
    const handshake kept = *position;
    handshakes_.erase(position);
    ++open_;
    const uint64_t bytes =
        std::min(said.message_bytes_max, context_.limits.message_bytes_max[said.channel]);
    session.open(number, bytes, said.channel, *this);
    session.hide_from_host();
    tell_connected(MOORAGE_WIRE_ACCEPTED, kept.listener, said.channel, session, bytes);
    session.hide_from_host(false);
    session.write_hello(said.channel);
}

inline void engine::failed(session &session, int32_t reason, const std::string &words) {
    const auto position =
        std::find_if(handshakes_.begin(), handshakes_.end(),
                     [&](const handshake &h) { return h.connection.get() == &session; });
    if (position == handshakes_.end()) return;
    context_.events.turned_away(position->listener, reason, session.peer(), words);
    handshakes_.erase(position);
}

}  // namespace tcp_wire

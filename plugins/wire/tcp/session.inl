// session.inl - how a session reads, writes and ends.
#pragma once

namespace tcp_wire {

inline void session::wait_to_read() {
    if (waits_to_read_ || state_ == state::over) return;
    waits_to_read_ = true;
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](failure stopped) {
        self->waits_to_read_ = false;
        if (stopped || self->is_over()) return;
        self->guard([&] { self->state_ == state::securing ? self->shake_hands() : self->read(); });
    });
}

inline void session::wait_to_write() {
    if (waits_to_write_ || state_ == state::over) return;
    waits_to_write_ = true;
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](failure stopped) {
        self->waits_to_write_ = false;
        if (stopped || self->is_over()) return;
        self->guard([&] { self->state_ == state::securing ? self->shake_hands() : self->write(); });
    });
}

inline void session::shake_hands() {
    last_heard_ = std::chrono::steady_clock::now();
    const io_result result = stream_.handshake();
    switch (result.status) {
        case io_status::done:
            identity_ = stream_.identity();
            if (stream_.secure() && identity_.empty())
                return fail(MOORAGE_WIRE_STRANGER,
                            "the peer's certificate names nobody: it needs a DNS name "
                            "(subjectAltName) of letters, digits, '-', '.' and '_'");
            ready_ = true;
            return keeper_->secured(*this);
        case io_status::wants_read:
            return wait_to_read();
        case io_status::wants_write:
            return wait_to_write();
        case io_status::ended:
            return fail(MOORAGE_WIRE_LOST, "the peer hung up during the handshake");
        case io_status::failed:
            return fail(result.reason, result.words);
    }
}

// Reads until nothing is left, or until other sessions have waited long enough.
inline void session::read() {
    if (state_ == state::finishing) return discard();
    for (int turns = 0; turns < 8; ++turns)
        if (!read_some()) return;
    if (!stream_.has_pending()) return wait_to_read();
    read_later();
}

inline void session::read_later() {
    asio::post(context_.io, [self = shared_from_this()] {
        if (!self->is_over()) self->guard([&] { self->read(); });
    });
}

// One read. Returns false if there is nothing more to read now.
inline bool session::read_some() {
    if (state_ == state::over) return false;
    const std::span<unsigned char> room = inbox_.room();
    if (room.empty()) {
        if (inbox_.room_state() == inbox::state::no_memory)
            return end(MOORAGE_WIRE_LOST, "no memory for a message"), false;
        starved_ = true;
        context_.starved.push_back(weak_from_this());
        return false;
    }
    const io_result result = stream_.read(room);
    if (result.status == io_status::wants_read) return wait_to_read(), false;
    if (result.status == io_status::wants_write) return wait_to_write(), false;
    if (result.status != io_status::done) return lost(result), false;
    if (state_ < state::open) last_heard_ = std::chrono::steady_clock::now();
    const auto seen = inbox_.got(
        result.bytes, [this](const head &h) { return allowed(h); },
        [this](const received_frame &message) { return take(message); });
    if (seen == inbox::verdict::stopped) return false;
    if (seen != inbox::verdict::fine) return misread(seen), false;
    if (result.bytes < room.size() && !stream_.secure()) return wait_to_read(), false;
    return true;
}

inline bool session::allowed(const head &h) const {
    if (h.kind == frame::goodbye) return h.length <= goodbye_bytes_max;
    if (state_ == state::greeting) return h.kind == frame::hello && h.length == hello_bytes;
    return h.kind == frame::message && h.length > 0 && h.length <= receive_bytes_max_;
}

// Handles a whole frame. Returns false if no further frame should be looked at.
inline bool session::take(const received_frame &message) {
    if (message.h.kind == frame::goodbye) {
        const goodbye said = read_goodbye(message.payload);
        end(said.reason,
            said.words.empty() ? "the peer said goodbye" : "the peer says: " + said.words);
        return false;
    }
    if (message.h.kind == frame::hello) {
        const auto read = read_hello(message.payload);
        if (!read || read->channel >= MOORAGE_WIRE_CHANNELS) {
            fail(MOORAGE_WIRE_MALFORMED, "a greeting that cannot be read");
            return false;
        }
        if (read->version != version) {
            refuse(MOORAGE_WIRE_MALFORMED,
                   "version " + std::to_string(read->version) + " of the tcp wire there, " +
                       std::to_string(version) + " here; update the older side");
            return false;
        }
        keeper_->greeted(*this, *read);
        return state_ == state::open;
    }
    moorage_wire_event report = event(MOORAGE_WIRE_MESSAGE);
    report.plugin_data = message.payload.data();
    report.bytes = message.payload.size();
    context_.lent.reserve();
    moorage_wire_event &listed = context_.events.add(report);
    listed.message = context_.lent.add(message.source);
    ++message.source->lent;
    return true;
}

inline void session::misread(inbox::verdict verdict) {
    if (verdict == inbox::verdict::no_frame) {
        const char *words = guess(inbox_.rest());
        return state_ == state::greeting ? refuse(MOORAGE_WIRE_MALFORMED, words)
                                         : end(MOORAGE_WIRE_MALFORMED, words);
    }
    const auto h = read_head(inbox_.rest().data());
    if (state_ == state::greeting) return refuse(MOORAGE_WIRE_MALFORMED, guess(inbox_.rest()));
    if (h->kind != frame::message || h->length == 0)
        return end(MOORAGE_WIRE_MALFORMED, "a frame that has no place here");
    end(MOORAGE_WIRE_TOO_LONG, "a message of " + std::to_string(h->length) + " bytes; " +
                                   std::to_string(receive_bytes_max_) + " are taken");
}

// No more can be read.
inline void session::lost(const io_result &result) {
    const bool began = state_ == state::greeting;
    const char *const ended =
        began ? "the peer hung up instead of a greeting; is security the same on both sides?"
              : "the connection broke off without a goodbye: the peer ended or was cut off";
    const std::string words = result.status == io_status::ended ? ended : result.words;
    const int32_t reason = result.status == io_status::ended ? MOORAGE_WIRE_LOST : result.reason;
    began ? fail(reason, words) : end(reason, words);
}

inline void session::write() {
    if (state_ == state::over || deaf_) return;
    const io_result result = outbox_.write(stream_, [this](uint64_t user) { sent(user); });
    report_room();
    if (result.status == io_status::wants_write) return wait_to_write();
    if (result.status == io_status::wants_read) return;  // the session reads anyway
    if (result.status != io_status::done) {
        // Earlier messages of the peer may still wait to be read, and then its end.
        deaf_ = true;
        if (state_ == state::finishing) return end(result.reason, result.words);
        return starved_ ? void() : wait_to_read();
    }
    if (state_ == state::finishing) stream_.finish();
}

inline void session::report_room() {
    if (!full_ || state_ != state::open) return;
    if (outbox_.bytes() > context_.limits.queue_bytes_max / 2 ||
        outbox_.messages() > context_.limits.queue_messages_max / 2)
        return;
    full_ = false;
    context_.events.add(event(MOORAGE_WIRE_WRITABLE));
}

inline uint32_t session::send(std::span<const moorage_wire_part> parts, uint64_t user,
                              std::string &refused) {
    if (state_ != state::open || deaf_ || short_of_memory()) return MOORAGE_WIRE_GONE;
    if (parts.size() > MOORAGE_WIRE_PARTS_MAX) {
        refused = "a message in " + std::to_string(parts.size()) + " parts; " +
                  std::to_string(MOORAGE_WIRE_PARTS_MAX) + " are possible";
        return MOORAGE_WIRE_REFUSED;
    }
    uint64_t length = 0;
    bool fits = true;
    for (const moorage_wire_part &part : parts) {
        fits = fits && part.bytes <= send_bytes_max_ - length;
        if (fits) length += part.bytes;
    }
    if (!fits || length == 0) {
        refused = fits ? "a message without bytes"
                       : "a message of more than the " + std::to_string(send_bytes_max_) +
                             " bytes that both sides take";
        return MOORAGE_WIRE_REFUSED;
    }
    const uint64_t whole = frame_bytes(length);
    if (!outbox_.empty() && (outbox_.messages() >= context_.limits.queue_messages_max ||
                             outbox_.bytes() + whole > context_.limits.queue_bytes_max)) {
        full_ = true;
        return MOORAGE_WIRE_FULL;
    }
    const head_image h = written(head{static_cast<uint32_t>(length), frame::message});
    uint64_t sent_bytes = 0;
    if (outbox_.empty()) {
        iovec batch[MOORAGE_WIRE_PARTS_MAX + 2];
        size_t count = 0;
        batch[count++] = part_of(h.data(), head_bytes);
        for (const moorage_wire_part &part : parts)
            if (part.bytes > 0) batch[count++] = part_of(part.host_data, part.bytes);
        if (padding(length) > 0) batch[count++] = part_of(zeros, padding(length));
        if (!write_at_once(std::span(batch, count), whole, sent_bytes)) return MOORAGE_WIRE_GONE;
        if (sent_bytes == whole) return MOORAGE_WIRE_DONE;
    }
    outbox_.add(h, parts, length, user, sent_bytes);
    wait_to_write();
    return MOORAGE_WIRE_TAKEN;
}

// Returns false if the connection is broken. Its end is reported later.
inline bool session::write_at_once(std::span<iovec> parts, uint64_t whole, uint64_t &sent_bytes) {
    while (sent_bytes < whole) {
        const io_result result = stream_.write(parts);
        if (result.status == io_status::wants_write || result.status == io_status::wants_read)
            break;
        if (result.status != io_status::done) {
            deaf_ = true;
            if (!starved_) wait_to_read();
            return false;
        }
        sent_bytes += result.bytes;
        size_t left = result.bytes;
        while (left > 0) {
            const size_t taken = std::min(left, parts[0].iov_len);
            parts[0] =
                part_of(static_cast<char *>(parts[0].iov_base) + taken, parts[0].iov_len - taken);
            left -= taken;
            if (parts[0].iov_len == 0) parts = parts.subspan(1);
        }
    }
    if (!stream_.flushed()) wait_to_write();
    return true;
}

// Tells the keeper that the session failed. The rest of the session belongs to no one.
inline void session::leave_keeper(int32_t reason, const std::string &words) {
    hidden_ = true;
    if (keeper_) keeper_->failed(*this, reason, words);
    keeper_ = nullptr;
}

inline void session::refuse(int32_t reason, const std::string &words) {
    if (state_ == state::over) return;
    leave_keeper(reason, words);
    outbox_.add(frame::goodbye, written_goodbye(reason, words));
    linger(std::chrono::seconds(1));
}

inline void session::fail(int32_t reason, const std::string &words) {
    if (state_ == state::over) return;
    leave_keeper(reason, words);
    // A TLS alert with the reason may be on its way. It is lost if the socket closes with unread
    // bytes.
    linger(std::chrono::seconds(1));
}

inline void session::close(bool at_once) {
    if (state_ != state::open) return;
    if (at_once) return end(MOORAGE_WIRE_BY_HOST, "closed by this side");
    outbox_.add(frame::goodbye, written_goodbye(MOORAGE_WIRE_BY_PEER, ""));
    linger(duration_of(context_.limits.close_ns));
}

// Writes what is queued, shuts down, and waits for the peer to do so too. A socket that closes with
// unread bytes takes back what it has sent.
inline void session::linger(std::chrono::nanoseconds time) {
    state_ = state::finishing;
    starved_ = false;
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this()](failure stopped) {
        if (!stopped && self->state_ == state::finishing)
            self->guard([&] { self->end(MOORAGE_WIRE_BY_HOST, "closed by this side"); });
    });
    write();
    if (state_ == state::finishing) read_later();
}

inline void session::discard() {
    unsigned char nowhere[16 << 10];
    for (int turns = 0; turns < 64 && state_ == state::finishing; ++turns) {
        const io_result result = stream_.read(nowhere);
        if (result.status == io_status::wants_read || result.status == io_status::wants_write)
            return wait_to_read();
        if (result.status != io_status::done)
            return end(MOORAGE_WIRE_BY_HOST, "closed by this side");
    }
    if (state_ == state::finishing) read_later();
}

// Ends the session and reports it.
inline void session::end(int32_t reason, std::string words) {
    if (state_ == state::over) return;
    const auto self = shared_from_this();
    if (state_ < state::open) leave_keeper(reason, words);
    if (state_ == state::finishing && outbox_.messages() > 0)
        reason = MOORAGE_WIRE_LOST,
        words = std::to_string(outbox_.messages()) + " messages could not be sent before the end";
    if (!hidden_) {
        moorage_wire_event report = event(MOORAGE_WIRE_CLOSED);
        report.reason = reason;
        context_.events.add(report, {identity_, peer_, std::move(words)});
    }
    drop();
    if (keeper_) keeper_->ended(*this);
}

}  // namespace tcp_wire

// stream.hpp - bytes over a connected socket without waiting, in the clear or through TLS.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "secure.hpp"
#include "silence.hpp"

namespace tcp_wire {

class stream {
public:
    // In the clear.
    explicit stream(int socket) : socket_(socket) {}
    // Through TLS, as its client or server.
    stream(int socket, const secure_context &context, bool client)
        : socket_(socket), tls_(context.begin(socket, client)) {}

    // Call until `done`. In the clear there is nothing to agree on.
    io_result handshake() {
        return tls_ ? tls_->handshake() : io_result{io_status::done, 0, {}, 0};
    }
    // The proved identity of the peer; in the clear "".
    std::string identity() const { return tls_ ? tls_->identity() : std::string(); }
    bool secure() const { return tls_ != nullptr; }

    io_result read(std::span<unsigned char> buffer) {
        if (tls_) return tls_->read(buffer);
        for (;;) {
            const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
            if (got > 0) return {io_status::done, static_cast<size_t>(got), {}, 0};
            if (got == 0) return {io_status::ended, 0, {}, 0};
            if (errno != EINTR) return blocked_or(errno, io_status::wants_read);
        }
    }
    // Returns how many bytes were taken. Taken bytes may still need a flush.
    io_result write(std::span<const iovec> parts) {
        if (tls_) return tls_->write(parts);
        msghdr message{};
        message.msg_iov = const_cast<iovec *>(parts.data());
        message.msg_iovlen = parts.size();
        for (;;) {
            const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
            if (sent >= 0) return {io_status::done, static_cast<size_t>(sent), {}, 0};
            if (errno != EINTR) return blocked_or(errno, io_status::wants_write);
        }
    }
    io_result flush() { return tls_ ? tls_->flush() : io_result{io_status::done, 0, {}, 0}; }
    bool flushed() const { return !tls_ || tls_->flushed(); }
    // Bytes that were read from the socket but not asked for yet. No event reports them.
    bool has_pending() const { return tls_ && tls_->has_pending(); }
    // Ends writing; the peer sees the end.
    void finish() {
        if (tls_) tls_->finish();
        ::shutdown(socket_, SHUT_WR);
    }

private:
    static io_result blocked_or(int code, io_status status) {
        if (code == EAGAIN || code == EWOULDBLOCK) return {status, 0, {}, 0};
        return {io_status::failed, 0, std::strerror(code), MOORAGE_WIRE_LOST};
    }

    int socket_;
    std::unique_ptr<secure_session> tls_;
};

// A connection works without these options, so a refusal is not reported.
inline void set_option(int socket, int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
}

// Small frames leave at once. An idle connection notices that the other end is gone.
inline void set_options(int socket, uint64_t silence_ms) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    const int probes = 3;
    const auto seconds = static_cast<int>(silence_ms / 1000 / (probes + 1));
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds > 0 ? seconds : 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds > 0 ? seconds : 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
}

inline void set_pace(int socket, uint64_t bytes_per_s) {
    const uint64_t rate = bytes_per_s == 0 ? ~uint64_t{0} : bytes_per_s;
    ::setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

// None if the kernel does not tell.
inline std::optional<acknowledgements> look_at(int socket) {
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
    return acknowledgements{info.tcpi_unacked, info.tcpi_last_ack_recv, info.tcpi_probes};
}

}  // namespace tcp_wire

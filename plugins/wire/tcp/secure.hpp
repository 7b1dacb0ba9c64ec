// secure.hpp - encryption of a connection, as the rest of the wire uses it. tls.hpp implements it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tcp_wire {

enum class io_status { done, wants_read, wants_write, ended, failed };
// The result of a read, write or handshake. After a failure `reason` is wire.h's, with `words`.
struct io_result {
    io_status status;
    size_t bytes;
    std::string words;
    int32_t reason;
};

// One side of an encrypted connection over a socket that does not wait.
class secure_session {
public:
    virtual ~secure_session() = default;
    virtual io_result handshake() = 0;
    virtual io_result read(std::span<unsigned char> buffer) = 0;
    // Copies up to one record and sends it. Returns how many bytes were taken; they may need a
    // flush.
    virtual io_result write(std::span<const iovec> parts) = 0;
    virtual bool flushed() const = 0;
    virtual io_result flush() = 0;
    // Bytes that were read from the socket but not asked for yet.
    virtual bool has_pending() const = 0;
    // Says goodbye to the peer and does not wait for its answer.
    virtual void finish() = 0;
    // The proved identity of the peer; "" if there is none.
    virtual std::string identity() const = 0;
};

// PEM files. `revoked` may be empty.
struct secure_files {
    std::string certificate, key, ca, revoked;
};

// All sessions of an instance share one. It outlives them.
class secure_context {
public:
    virtual ~secure_context() = default;
    // The socket stays the caller's.
    virtual std::unique_ptr<secure_session> begin(int socket, bool client) const = 0;
};

// Reads the files. Throws std::invalid_argument with the file's name. tcp.so takes it from a
// library of its own (tls_library.hpp), so that OpenSSL is loaded only where it is used.
std::unique_ptr<secure_context> open_secure_context(const secure_files &files);

}  // namespace tcp_wire

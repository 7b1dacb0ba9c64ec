// tls.hpp - TLS 1.3 with certificates on both sides, over a socket that does not wait.
//
// The identity of a peer is its certificate's first DNS name (subjectAltName), if the authority in
// `ca` vouches for it. The authorities of the system do not count. There are no session tickets:
// every connection is checked anew. No text contains anything of keys or certificates.
#pragma once

#include <moorage/moorage.hpp>

#include <boost/asio/ssl/context.hpp>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

#include "secure.hpp"

namespace tcp_wire {

// A socket for OpenSSL. OpenSSL's own would raise SIGPIPE if the peer is gone.
namespace quiet_socket {
inline int descriptor(BIO *bio) {
    return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}
inline int write(BIO *bio, const char *bytes, int count) {
    BIO_clear_retry_flags(bio);
    const ssize_t sent = ::send(descriptor(bio), bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_retry_write(bio);
    return static_cast<int>(sent);
}
inline int read(BIO *bio, char *bytes, int count) {
    BIO_clear_retry_flags(bio);
    const ssize_t got = ::recv(descriptor(bio), bytes, static_cast<size_t>(count), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_retry_read(bio);
    return static_cast<int>(got);
}
inline long control(BIO *, int command, long, void *) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
inline const BIO_METHOD *method() {
    static const BIO_METHOD *socket_method = [] {
        BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet socket");
        BIO_meth_set_write(m, write);
        BIO_meth_set_read(m, read);
        BIO_meth_set_ctrl(m, control);
        return m;
    }();
    return socket_method;
}
inline BIO *make(int socket) {
    BIO *bio = BIO_new(method());
    if (!bio) throw std::bad_alloc();
    BIO_set_data(bio, reinterpret_cast<void *>(static_cast<intptr_t>(socket)));
    BIO_set_init(bio, 1);
    return bio;
}
}  // namespace quiet_socket

class tls_context final : public secure_context {
public:
    // Reads the files. Throws std::invalid_argument with the file's name.
    explicit tls_context(const secure_files &files) : context_(boost::asio::ssl::context::tlsv13) {
        const auto &[certificate, key, ca, revoked] = files;
        namespace ssl = boost::asio::ssl;
        boost::system::error_code failed;
        const auto check = [&](const char *setting, const std::string &file) {
            if (failed)
                throw std::invalid_argument(
                    std::string(setting) + " " + file +
                    " cannot be used: " + reason(file, static_cast<uint32_t>(failed.value())));
        };
        context_.use_certificate_chain_file(certificate, failed);
        check("certificate", certificate);
        // Otherwise OpenSSL asks for it on the terminal.
        const auto asked = std::make_shared<bool>(false);
        context_.set_password_callback(
            [asked](size_t, ssl::context::password_purpose) { return *asked = true, ""; });
        context_.use_private_key_file(key, ssl::context::pem, failed);
        if (*asked)
            throw std::invalid_argument("key " + key +
                                        " cannot be used: it has a passphrase; write it without "
                                        "one (openssl pkey -in KEY -out NEW) into a file that "
                                        "only this user can read");
        check("key", key);
        context_.load_verify_file(ca, failed);
        check("ca", ca);
        if (!revoked.empty()) take_revoked(revoked);
        context_.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
        SSL_CTX *raw = context_.native_handle();
        SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION);
        SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_num_tickets(raw, 0);
        SSL_CTX_set_read_ahead(raw, 1);
        SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    std::unique_ptr<secure_session> begin(int socket, bool client) const override;
    SSL_CTX *raw() const { return const_cast<tls_context *>(this)->context_.native_handle(); }

private:
    // Refuses peers that the authority has revoked, and every peer once the list is out of date.
    void take_revoked(const std::string &file) {
        const std::unique_ptr<BIO, decltype(&BIO_free)> input(BIO_new_file(file.c_str(), "r"),
                                                              BIO_free);
        const std::unique_ptr<X509_CRL, decltype(&X509_CRL_free)> list(
            input ? PEM_read_bio_X509_CRL(input.get(), nullptr, nullptr, nullptr) : nullptr,
            X509_CRL_free);
        if (!list)
            throw std::invalid_argument("revoked " + file +
                                        " cannot be used: " + reason(file, ERR_peek_last_error()));
        X509_STORE *const store = SSL_CTX_get_cert_store(raw());
        X509_STORE_add_crl(store, list.get());
        X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    }
    // If OpenSSL has no words, the file cannot be read.
    static std::string reason(const std::string &file, unsigned long code) {
        if (::access(file.c_str(), R_OK) != 0) return std::strerror(errno);
        const char *said = ERR_reason_error_string(code);
        return said ? said : "it is not in PEM";
    }
    boost::asio::ssl::context context_;
};

class tls_session final : public secure_session {
public:
    tls_session(int socket, const tls_context &context, bool client)
        : ssl_(SSL_new(context.raw())) {
        if (!ssl_) throw std::bad_alloc();
        BIO *bio = quiet_socket::make(socket);
        SSL_set_bio(ssl_.get(), bio, bio);
        client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
    }

    io_result handshake() override {
        ERR_clear_error();
        errno = 0;
        const int answer = SSL_do_handshake(ssl_.get());
        if (answer == 1) return {io_status::done, 0, {}, 0};
        return stopped(answer);
    }
    io_result read(std::span<unsigned char> buffer) override {
        ERR_clear_error();
        errno = 0;
        size_t got = 0;
        const int answer = SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &got);
        if (answer == 1) return {io_status::done, got, {}, 0};
        return stopped(answer);
    }
    // Copies up to one record and sends it, because two writes would be two records.
    io_result write(std::span<const iovec> parts) override {
        if (!flushed()) {
            if (io_result first = flush(); first.status != io_status::done) return first;
        }
        size_t taken = 0;
        for (const iovec &part : parts) {
            const size_t fits = std::min(part.iov_len, record_.size() - end_);
            std::memcpy(record_.data() + end_, part.iov_base, fits);
            end_ += fits, taken += fits;
            if (end_ == record_.size()) break;
        }
        io_result sent = flush();
        if (sent.status == io_status::failed || sent.status == io_status::ended) return sent;
        return {io_status::done, taken, {}, 0};
    }
    bool flushed() const override { return begin_ == end_; }
    io_result flush() override {
        while (!flushed()) {
            ERR_clear_error();
            errno = 0;
            size_t sent = 0;
            const int answer =
                SSL_write_ex(ssl_.get(), record_.data() + begin_, end_ - begin_, &sent);
            if (answer != 1) return stopped(answer);
            begin_ += sent;
        }
        begin_ = end_ = 0;
        return {io_status::done, 0, {}, 0};
    }
    bool has_pending() const override { return SSL_has_pending(ssl_.get()) == 1; }
    // Says goodbye to the peer's TLS and does not wait for its answer.
    void finish() override {
        ERR_clear_error();
        if (SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
        ERR_clear_error();
    }

    // The first DNS name of the peer's certificate; "" if no name could be an identity.
    std::string identity() const override {
        const std::unique_ptr<X509, decltype(&X509_free)> certificate(
            SSL_get1_peer_certificate(ssl_.get()), X509_free);
        if (!certificate) return "";
        const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
            static_cast<GENERAL_NAMES *>(
                X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)),
            GENERAL_NAMES_free);
        if (!names) return "";
        std::string found;
        for (int i = 0; i < sk_GENERAL_NAME_num(names.get()) && found.empty(); ++i) {
            const GENERAL_NAME *name = sk_GENERAL_NAME_value(names.get(), i);
            if (name->type != GEN_DNS) continue;
            found.assign(reinterpret_cast<const char *>(ASN1_STRING_get0_data(name->d.dNSName)),
                         static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
            break;
        }
        const bool plain = std::all_of(found.begin(), found.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '-' || c == '.' || c == '_';
        });
        return plain && found.size() < MOORAGE_WIRE_ADDRESS_MAX ? found : "";
    }

private:
    io_result stopped(int answer) {
        const int system_error = errno;
        switch (SSL_get_error(ssl_.get(), answer)) {
            case SSL_ERROR_WANT_READ:
                return {io_status::wants_read, 0, {}, 0};
            case SSL_ERROR_WANT_WRITE:
                return {io_status::wants_write, 0, {}, 0};
            case SSL_ERROR_ZERO_RETURN:
                return {io_status::ended, 0, {}, 0};
            case SSL_ERROR_SYSCALL:
                if (system_error == 0) return {io_status::ended, 0, {}, 0};
                return {io_status::failed, 0, std::strerror(system_error), MOORAGE_WIRE_LOST};
            default:
                return refused();
        }
    }
    // An error of TLS itself: the side at fault, in words.
    io_result refused() {
        const unsigned long code = ERR_peek_last_error();
        ERR_clear_error();
        const int reason = ERR_GET_REASON(code);
        if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return {io_status::ended, 0, {}, 0};
        const char *said = ERR_reason_error_string(code);
        const std::string words = said ? said : "no reason given";
        if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK)
            return {io_status::failed, 0,
                    std::string("the peer's certificate is refused: ") +
                        X509_verify_cert_error_string(verified),
                    MOORAGE_WIRE_STRANGER};
        if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
            return {io_status::failed, 0, "the peer shows no certificate", MOORAGE_WIRE_STRANGER};
        if (reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256)
            return {io_status::failed, 0, "the peer refuses this side: " + words,
                    MOORAGE_WIRE_STRANGER};
        return {io_status::failed, 0, "no TLS 1.3 with this peer: " + words,
                MOORAGE_WIRE_MALFORMED};
    }

    struct freed {
        void operator()(SSL *old) const { SSL_free(old); }
    };
    std::unique_ptr<SSL, freed> ssl_;
    std::array<unsigned char, 16 << 10> record_;
    size_t begin_ = 0, end_ = 0;
};

inline std::unique_ptr<secure_session> tls_context::begin(int socket, bool client) const {
    return std::make_unique<tls_session>(socket, *this, client);
}

}  // namespace tcp_wire

// tcp.cpp - wire policy: messages over TCP, in the clear or through TLS 1.3 with certificates.
//
// Idea: each connection of the host is its own socket, so calls never wait behind bulk. A message
// leaves in one gather write from the host's memory, within `send` if the kernel takes it. It is
// received into memory that is lent to the host as it is. With TLS a message is copied once, into
// records of up to 16 KiB. The polling thread does everything, so nothing is locked. Only names are
// looked up on other threads. Before it sleeps, the thread looks at the sockets for `poll_us`.
// Several addresses of a peer are tried 25 ms apart. The first one that proves the right identity
// is taken.
//
// Death of a peer: the end of a stream without a goodbye, a reset, keepalive on idle connections,
// or data that is not acknowledged for `silence_ms`. A stopped peer still acknowledges; the host
// sends heartbeats. Memory of a connection beside the limits: 128 KiB, with TLS 50 more.
//
// Parameters: security ("none" stays on loopback, unless open_network allows more), certificate,
// key, ca (files, PEM), poll_us, silence_ms. Source: RFC 9293, RFC 8446. Cost of a call: one system
// call each for send and poll of a small message.
//
// Reading order: session.hpp (one socket), engine.hpp (an instance), lobby.hpp and accepting.inl
// (incoming connections), dial.hpp (from addresses to a session).

#include <string>
#include <utility>

#include "../engine_wire.hpp"
#include "engine.hpp"
#include "tls_library.hpp"

namespace {

class tcp_policy : public wire::engine_wire<tcp_wire::engine, tcp_wire::settings> {
public:
    static constexpr moorage::about about{.name = "tcp",
                                          .summary = "messages over TCP, with TLS 1.3 if asked for",
                                          .source = "RFC 9293, RFC 8446",
                                          .version = "1.0.0"};
    static constexpr moorage::param params[] = {
        moorage::text("security", "none", "none|tls",
                      "tls: encrypted, both sides show certificates; none: loopback only"),
        moorage::flag(
            "open_network", false,
            "security \"none\" beyond loopback, too: everybody on the network is trusted"),
        moorage::text("certificate", "", nullptr,
                      "PEM file of this node's certificate; its first DNS name is its identity"),
        moorage::text("key", "", nullptr, "PEM file of the certificate's private key"),
        moorage::text("ca", "", nullptr, "PEM file of the authority that vouches for all nodes"),
        moorage::text("revoked", "", nullptr,
                      "PEM file of the authority's list of revoked certificates; read once"),
        moorage::integer("poll_us", 20, 0, 1'000'000,
                         "how long to look for bytes before sleeping, in us"),
        moorage::integer("silence_ms", 2000, 100, 3'600'000,
                         "a connection without acknowledgement for so long is lost"),
    };

    explicit tcp_policy(const moorage::setup &setup) : engine_wire(setup) {
        settings_.tls = setup.text("security") == "tls";
        settings_.open_network = setup.flag("open_network");
        settings_.certificate = setup.text("certificate");
        settings_.key = setup.text("key");
        settings_.ca = setup.text("ca");
        settings_.revoked = setup.text("revoked");
    }
    void open(const moorage_wire_limits &limits) {
        for (const auto &[key, file] : {std::pair{"certificate", &settings_.certificate},
                                        {"key", &settings_.key},
                                        {"ca", &settings_.ca}})
            if (settings_.tls && file->empty())
                throw std::invalid_argument(std::string("security = \"tls\" needs ") + key +
                                            ", a PEM file");
        engine_wire::open(limits);
    }
    void pace(uint64_t connection, uint64_t bytes_per_s) {
        if (engine_) engine_->pace(connection, bytes_per_s);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.tcp", "1.0.0", tcp_policy)

// ucx.cpp - wire policy: messages through UCX: shared memory, TCP, RDMA where there is.
//
// Idea: a message of the host is one active message, sent eagerly from the host's memory, ordered
// by its place; a window of bytes that the receiver grants holds the sender back, as UCX itself
// takes in whatever comes. One worker, driven by the thread that polls; before it sleeps it looks
// for `poll_us`. Neither encryption nor identities: it listens, calls and is called within the
// networks that `trusted` names, and nowhere else.
//
// Death: an error of the end point, found by UCX's keepalive (silence_ms / 4 apart) also through
// shared memory. A peer that is stopped is not noticed: heartbeats are the host's. Memory of a
// connection beside the limits: what UCX keeps for an end point, some 100 KiB.
//
// Parameters: trusted (networks), transports (UCX_TLS: empty lets UCX choose; in network namespaces
// of one machine say "tcp", else it finds shared memory), poll_us, silence_ms. Source: UCX 1.13.
// Cost of a call: send copies up to some KiB; a received message is copied once.

#include "../engine_wire.hpp"
#include "engine.hpp"

namespace {

class ucx_policy : public wire::engine_wire<ucx_wire::engine, ucx_wire::settings> {
public:
    static constexpr moorage::about about{.name = "ucx",
                                          .summary = "messages through UCX, in trusted networks",
                                          .source = "UCX 1.13",
                                          .version = "1.0.0"};
    static constexpr moorage::param params[] = {
        moorage::text("trusted", "127.0.0.0/8, ::1/128", nullptr,
                      "networks in which everybody may read and call, as 10.0.0.0/24"),
        moorage::text("transports", "", nullptr, "UCX_TLS; empty: as UCX chooses"),
        moorage::integer("poll_us", 20, 0, 1'000'000,
                         "how long to look for messages before sleeping, in us"),
        moorage::integer("silence_ms", 2000, 200, 3'600'000,
                         "four keepalives of UCX go out in this time"),
    };

    explicit ucx_policy(const moorage::setup &setup) : engine_wire(setup) {
        set_.trusted = setup.text("trusted");
        set_.transports = setup.text("transports");
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.ucx", "1.0.0", ucx_policy)

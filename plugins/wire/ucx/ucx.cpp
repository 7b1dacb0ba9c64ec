// ucx.cpp - wire policy: messages through UCX: shared memory, TCP, RDMA if available.
//
// Idea: a message of the host is one active message. It is sent eagerly from the host's memory and
// ordered by its place. UCX itself takes in whatever comes, so a window of bytes that the receiver
// grants holds the sender back. The polling thread drives one worker. Before it sleeps, it looks
// for events for `poll_us`. There is neither encryption nor identity. So it listens, calls and is
// called only within the networks that `trusted` names.
//
// Death of a peer: an error of the end point. UCX's keepalive finds it (silence_ms / 4 apart), also
// through shared memory. A stopped peer is not noticed; the host sends heartbeats. Memory of a
// connection beside the limits: what UCX keeps for an end point, some 100 KiB.
//
// Parameters: trusted (networks), transports (UCX_TLS: empty lets UCX choose; in network namespaces
// of one machine use "tcp", else it finds shared memory), poll_us, silence_ms. Source: UCX 1.13.
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
        settings_.trusted = setup.text("trusted");
        settings_.transports = setup.text("transports");
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.ucx", "1.0.0", ucx_policy)

// connection.hpp - one end of a connection: what waits to be sent, what arrived, and its state.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <moorage/moorage.hpp>

#include "frame.hpp"
#include "network.hpp"

namespace ucx_wire {

inline uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
}

// A message of the host that waits for its turn. The host owns its bytes.
struct waiting_message {
    std::vector<ucp_dt_iov> parts;
    uint64_t bytes = 0, user = 0;
};

// A message that arrived: UCX's memory, or a copy if that is badly aligned.
struct lent_message {
    void *ucx_data = nullptr;
    std::unique_ptr<uint64_t[]> copy;
    const void *data = nullptr;
    uint64_t bytes = 0;
    uint64_t connection = 0;  // token
};

struct connection {
    enum class connection_state : uint8_t {
        dialing,   // hello is under way, or its answer
        greeting,  // a peer connected, and its hello is awaited
        open,
        closing,   // taken messages go out, then goodbye
        flushing,  // goodbye is under way, or its answer
        farewell,  // the other said goodbye, and the answer is under way
        dying      // its end point is being closed
    };
    uint64_t token = 0;
    connection_state state = connection_state::dialing;
    bool dialed = false, listed = false;  // listed: CONNECTED or ACCEPTED was reported
    ucp_ep_h end_point = nullptr;
    void *closing = nullptr;  // the request, while dying
    int32_t channel = MOORAGE_WIRE_CALLS;
    uint64_t listener = 0, deadline_ns = MOORAGE_NEVER;
    std::string address;
    std::vector<place> more_places;  // to be tried next

    // Towards the other end.
    uint64_t peer_token = 0;  // its token
    uint64_t send_bytes_max = 0, window = 0, granted_all = 0;
    uint64_t next_place = 0;
    std::deque<waiting_message> waiting;
    uint64_t queued_bytes = 0, queued_messages = 0, under_way = 0;
    bool full = false;

    // From the other end.
    uint64_t awaited_place = 0, goodbye_place = MOORAGE_NEVER;
    uint64_t held_bytes = 0, owed_bytes = 0;
    std::map<uint64_t, uint64_t> early;  // lent messages by place

    // Its end, once it ends.
    int32_t reason = 0;
    std::string words;
    bool quiet = false;  // no CLOSED event: it was turned away
};

}  // namespace ucx_wire

// frame.h - the header of every message between nodes, and its checks.
//
//   offset bytes
//        0     4  "MOOR"
//        4     2  version of the protocol
//        6     2  kind of message
//        8     4  sender: its index among the servers of the cluster; 0xffffffff: none of them
//       12     4  checksum of the body, CRC-32C
//       16     8  incarnation of the sender: a new one each time that its process starts
//       24     8  epoch of the plan that the sender uses
//       32     8  id of the call that the message is about; 0: none
//       40     8  bytes of the body
//       48     8  number of the request at the sender or, in an answer, at the asking home; 0: none
//       56     4  0
//       60     4  checksum of the 60 bytes before
//
// All values are little-endian. A message is a header and its body, with nothing after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

constexpr uint16_t protocol_version = 1;
constexpr size_t frame_header_bytes = 64;
constexpr uint64_t frame_bytes_max = uint64_t{1} << 30;
constexpr uint32_t no_server = 0xffffffffu;

enum class message_kind : uint16_t {
    hello = 1,       // first message of the side that connected
    welcome,         // the answer
    refusal,         // why there is no welcome; the connection ends
    call,            // experts for rows of hidden states
    reply,           // the outputs for a call
    failed,          // there will be no reply, and why
    cancel,          // the sender no longer needs the call
    ping,            // is the other node alive?
    pong,            // the answer to ping
    statistics,      // how often each expert was requested
    goodbye,         // the sender accepts no more calls
    weights_wanted,  // a range of an expert's weights
    weights,         // the range
    ask = 24,        // a request to a home: continue this text
    tokens           // the continuation
};
constexpr uint16_t message_kinds = 13;  // contiguous from hello; then ask and tokens
constexpr bool is_known(uint16_t kind) {
    return (kind >= 1 && kind <= message_kinds) ||
           kind == static_cast<uint16_t>(message_kind::ask) ||
           kind == static_cast<uint16_t>(message_kind::tokens);
}

struct frame_header {
    message_kind kind = message_kind::hello;
    uint16_t version = protocol_version;
    uint32_t sender = no_server;
    uint32_t body_crc = 0;
    uint64_t incarnation = 0, epoch = 0, id = 0;
    uint64_t body_bytes = 0;
    uint64_t request = 0;  // for following a request across nodes
    bool operator==(const frame_header &) const = default;
};

// Why a message was refused, as counted in figures.
enum class refusal_reason : uint32_t {
    none,
    not_ours,  // it does not begin like a frame
    version,
    checksum,
    size,    // a length does not fit the bytes, or exceeds a limit
    shape,   // sizes differ from the model's, or numbers are out of range
    values,  // hidden states are not finite
    epoch,   // it belongs to another plan
    incarnation,
    model,    // another model
    cluster,  // another cluster
    busy,     // there is no room for more
    draining,
    lacks,  // the expert is not here
    unexpected
};
constexpr uint32_t refusal_reasons = 15;
const char *name_of(refusal_reason reason);

struct objection {
    refusal_reason reason = refusal_reason::none;
    std::string text;
};

// Begins a message: reserves its header. Append the body after it.
void begin_frame(std::vector<std::byte> &message);
// Writes the header, with length and checksum of the body that was appended.
void end_frame(std::vector<std::byte> &message, frame_header header);

// The header and the body of a complete message, checked against each other. The header of a newer
// version is distinguished from garbage, so that the refusal can name the node to update.
struct frame {
    frame_header header;
    std::span<const std::byte> body;  // borrowed from the message
};
// objection::reason is none if `parsed` is valid.
objection read_frame(std::span<const std::byte> message, frame &parsed);
// "version 3 of the protocol is spoken by the other node, 1 by this one: update this one"
std::string version_text(uint16_t theirs, uint16_t ours);

}  // namespace moorage::core

// frame.h - the header that begins every message between nodes, and what is checked of it.
//
//   offset bytes
//        0     4  "MOOR"
//        4     2  version of the protocol
//        6     2  kind of message
//        8     4  sender: its number among the servers of the cluster; 0xffffffff: none of them
//       12     4  checksum of the body, CRC-32C
//       16     8  incarnation of the sender: another one each time that its process starts
//       24     8  epoch of the plan that the sender goes by
//       32     8  id of the call that the message is about; 0: of none
//       40     8  bytes of the body
//       48     8  number of the request at the sender's or, of an answer, the asker's home; 0: none
//       56     4  0
//       60     4  checksum of the 60 bytes before
//
// All values are little-endian. A message is a header and its body, and nothing behind it.
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
    hello = 1,       // the first of whoever connected
    welcome,         // the answer
    refusal,         // why there is none; the connection ends
    call,            // experts for rows of hidden states
    reply,           // what came of them
    failed,          // a call that will have no reply, and why
    cancel,          // nobody waits for the call any more
    ping,            // is there anybody
    pong,            // yes
    statistics,      // how often each expert was asked for
    goodbye,         // the sender takes no more calls
    weights_wanted,  // a range of an expert's weights
    weights,         // the range
    ask = 24,        // a request to a home: continue this
    tokens           // what it writes
};
constexpr uint16_t message_kinds = 13;  // from hello on; then ask and tokens
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
    uint64_t request = 0;  // so that it can be followed over nodes
    bool operator==(const frame_header &) const = default;
};

// Why a message was not taken, as it is counted.
enum class refusal_reason : uint32_t {
    none,
    not_ours,  // it does not begin as a frame does
    version,
    checksum,
    size,    // a length that does not fit the bytes, or a limit
    shape,   // sizes that are not the model's, numbers out of range
    values,  // hidden states that are no finite numbers
    epoch,   // of another plan
    incarnation,
    model,    // another one
    cluster,  // another one
    busy,     // no room for more
    draining,
    lacks,  // the expert is not held here
    unexpected
};
constexpr uint32_t refusal_reasons = 15;
const char *name_of(refusal_reason why);

struct objection {
    refusal_reason why = refusal_reason::none;
    std::string text;
};

// Begins a message: room for its header, to which a body is appended.
void begin_frame(std::vector<std::byte> &message);
// Writes the header, with length and checksum of the body that follows it by now.
void end_frame(std::vector<std::byte> &message, frame_header header);

// The header of a message that has arrived whole, and its body, checked against each other. The
// header of a newer version is told from garbage, so that the refusal can say who is to be updated.
struct frame {
    frame_header header;
    std::span<const std::byte> body;  // borrowed from the message
};
// objection::why is none when `out` is good.
objection read_frame(std::span<const std::byte> message, frame &out);
// "version 3 of the protocol is spoken by the other node, 1 by this one: update this one"
std::string version_text(uint16_t theirs, uint16_t ours);

}  // namespace moorage::core

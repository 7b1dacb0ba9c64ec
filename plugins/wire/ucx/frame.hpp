// frame.hpp - the messages between two ucx wires: active message 21 with this header. For other
// implementers.
//
//   hello    from the connecting end, with the flag that allows an answer: token of its own end
//   welcome  the answer: token of its end; both state their limits
//   data     a message of the host: its place in the order, from 0 on
//   grant    so many bytes were released: as many more may be sent
//   goodbye  no message has that place or a later one
//
// A token is the number by which an end finds its connection. Every message except hello names the
// receiver's token. Data costs its bytes and 64 more, out of the amount that the other end holds
// (held_bytes_max), until they are granted again. A message that costs more than that may be sent
// when all is granted.
#pragma once

#include <cstdint>
#include <cstring>

namespace ucx_wire {

inline constexpr unsigned message_id = 21;
inline constexpr uint32_t magic = 0x58434d4d;  // "MMCX"
inline constexpr uint16_t version = 1;
inline constexpr uint64_t message_cost = 64;

enum class frame : uint16_t { hello = 1, welcome, data, grant, goodbye };

struct head {
    uint32_t magic = ucx_wire::magic;
    uint16_t version = ucx_wire::version;
    frame kind = frame::data;
    uint64_t receiver = 0;  // token of the receiver; hello: 0
    uint64_t value = 0;    // hello, welcome: the sender's token; data, goodbye: place; grant: bytes
    uint32_t channel = 0;  // hello
    uint32_t zero = 0;
    uint64_t message_bytes_max = 0;  // hello, welcome: of the channel
    uint64_t held_bytes_max = 0;     // hello, welcome
};
static_assert(sizeof(head) == 48);

// Whether the bytes are a head. The receiver checks the length of what follows.
inline bool read_head(const void *data, size_t bytes, head &header) {
    if (bytes != sizeof(head)) return false;
    std::memcpy(&header, data, sizeof(head));
    return header.magic == magic && header.version == version && header.zero == 0 &&
           header.kind >= frame::hello && header.kind <= frame::goodbye;
}

}  // namespace ucx_wire

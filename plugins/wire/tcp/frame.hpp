// frame.hpp - the bytes on the socket: frames, the greeting and the goodbye. For other
// implementers.
//
//   frame     8 bytes of head, `length` bytes, zeros up to a multiple of 8
//   head      u32 length | u8 kind | 3 bytes 0                 all numbers little-endian
//   hello     "moorwire" | u16 version | u8 channel | 5 bytes 0 | u64 longest message it takes
//   goodbye   u8 reason (wire.h) | words
//
// The connecting side greets first. The accepting side answers with its own greeting or a goodbye.
#pragma once

#include <moorage/moorage.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tcp_wire {

inline constexpr uint16_t version = 1;
inline constexpr size_t head_bytes = 8, hello_bytes = 24, goodbye_bytes_max = 256;
inline constexpr std::string_view magic = "moorwire";

enum class frame : uint8_t { hello = 1, message = 2, goodbye = 3 };

struct head {
    uint32_t length;
    frame kind;
};

inline constexpr uint64_t message_bytes_most = UINT32_MAX - 64;  // the most that a head can say

constexpr uint64_t padding(uint64_t length) { return (8 - length % 8) % 8; }
constexpr uint64_t frame_bytes(uint64_t length) { return head_bytes + length + padding(length); }

using head_image = std::array<unsigned char, head_bytes>;

inline head_image written(const head &h) {
    head_image bytes{};
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(h.length >> 8 * i);
    bytes[4] = static_cast<unsigned char>(h.kind);
    return bytes;
}

// None if the bytes are no head. Requires: head_bytes of them.
inline std::optional<head> read_head(const unsigned char *bytes) {
    head h{};
    for (int i = 0; i < 4; ++i) h.length |= uint32_t{bytes[i]} << 8 * i;
    h.kind = static_cast<frame>(bytes[4]);
    const bool known = bytes[4] >= 1 && bytes[4] <= 3;
    if (!known || bytes[5] != 0 || bytes[6] != 0 || bytes[7] != 0) return std::nullopt;
    return h;
}

struct hello {
    uint16_t version;
    uint8_t channel;
    uint64_t message_bytes_max;
};

inline std::string written(const hello &h) {
    std::string bytes(magic);
    bytes.push_back(static_cast<char>(h.version & 0xff));
    bytes.push_back(static_cast<char>(h.version >> 8));
    bytes.push_back(static_cast<char>(h.channel));
    bytes.append(5, '\0');
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(h.message_bytes_max >> 8 * i));
    return bytes;
}

// None if it is no hello. A hello of another version is read all the same.
inline std::optional<hello> read_hello(std::span<const unsigned char> bytes) {
    if (bytes.size() < hello_bytes) return std::nullopt;
    if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) return std::nullopt;
    hello h{};
    h.version = static_cast<uint16_t>(bytes[8] | bytes[9] << 8);
    h.channel = bytes[10];
    for (int i = 0; i < 8; ++i) h.message_bytes_max |= uint64_t{bytes[16 + i]} << 8 * i;
    return h;
}

inline std::string written_goodbye(int32_t reason, std::string_view words) {
    std::string bytes(1, static_cast<char>(reason));
    bytes += words.substr(0, goodbye_bytes_max - 1);
    return bytes;
}

struct goodbye {
    int32_t reason;
    std::string words;  // printable characters only
};
inline goodbye read_goodbye(std::span<const unsigned char> bytes) {
    goodbye read{MOORAGE_WIRE_BY_PEER, ""};
    if (bytes.empty()) return read;
    if (bytes[0] > MOORAGE_WIRE_BY_PEER && bytes[0] <= MOORAGE_WIRE_TOO_SLOW)
        read.reason = bytes[0];
    for (const unsigned char c : bytes.subspan(1)) {
        if (read.words.size() + 1 >= goodbye_bytes_max) break;
        read.words.push_back(c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?');
    }
    return read;
}

// A guess for people at bytes that are no frame.
inline const char *guess(std::span<const unsigned char> bytes) {
    const auto begins = [&](std::string_view text) {
        return bytes.size() >= text.size() &&
               std::memcmp(bytes.data(), text.data(), text.size()) == 0;
    };
    for (const std::string_view verb : {"GET ", "POST", "HEAD", "PUT ", "HTTP"})
        if (begins(verb)) return "these bytes are HTTP";
    if (bytes.size() > 1 && (bytes[0] == 0x15 || bytes[0] == 0x16) && bytes[1] == 0x03)
        return "the peer speaks TLS and this side does not; set security = \"tls\" on both";
    return "these bytes are not of the tcp wire";
}

}  // namespace tcp_wire

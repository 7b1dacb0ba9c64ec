// frame.cpp - writes and checks the headers of messages.
#include "tools/protocol/frame.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "core/base/text.h"
#include "tools/protocol/byte_reader.h"
#include "tools/protocol/crc32c.h"

namespace moorage::core {

namespace {

constexpr uint32_t magic = 0x524f4f4d;  // "MOOR"
constexpr size_t checked_bytes = frame_header_bytes - sizeof(uint32_t);

constexpr const char *names[] = {"none",    "not ours", "version",  "checksum",    "size",
                                 "shape",   "values",   "epoch",    "incarnation", "model",
                                 "cluster", "busy",     "draining", "lacks",       "unexpected"};
static_assert(std::size(names) == refusal_reasons);

}  // namespace

const char *name_of(refusal_reason reason) {
    const auto index = static_cast<uint32_t>(reason);
    return index < refusal_reasons ? names[index] : "unknown";
}

std::string version_text(uint16_t theirs, uint16_t ours) {
    return format(
        "version {} of the protocol is spoken by the other node, {} by this one: update {}", theirs,
        ours, theirs > ours ? "this one" : "the other");
}

void begin_frame(std::vector<std::byte> &message) {
    message.clear();
    message.resize(frame_header_bytes);
}

void end_frame(std::vector<std::byte> &message, frame_header header) {
    assert(message.size() >= frame_header_bytes);
    const std::span<const std::byte> body = std::span(message).subspan(frame_header_bytes);
    std::vector<std::byte> head;
    byte_writer writer(head);
    writer.value(magic);
    writer.value(header.version);
    writer.value(static_cast<uint16_t>(header.kind));
    writer.value(header.sender);
    writer.value(crc32c(body));
    writer.value(header.incarnation);
    writer.value(header.epoch);
    writer.value(header.id);
    writer.value(uint64_t{body.size()});
    writer.value(header.request);
    writer.value(uint32_t{0});
    writer.value(crc32c(head));
    std::ranges::copy(head, message.begin());
}

objection read_frame(std::span<const std::byte> message, frame &parsed) {
    if (message.size() < frame_header_bytes)
        return {refusal_reason::size, format("a message of {} bytes; a header has {}",
                                             message.size(), frame_header_bytes)};
    byte_reader reader(message.first(frame_header_bytes));
    frame_header &read = parsed.header;
    if (reader.value<uint32_t>() != magic)
        return {refusal_reason::not_ours, "what came is no message of a node of moorage"};
    read.version = reader.value<uint16_t>();
    const auto kind = reader.value<uint16_t>();
    read.sender = reader.value<uint32_t>();
    read.body_crc = reader.value<uint32_t>();
    read.incarnation = reader.value<uint64_t>();
    read.epoch = reader.value<uint64_t>();
    read.id = reader.value<uint64_t>();
    read.body_bytes = reader.value<uint64_t>();
    read.request = reader.value<uint64_t>();
    const auto zero = reader.value<uint32_t>();
    if (reader.value<uint32_t>() != crc32c(message.first(checked_bytes)))
        return {refusal_reason::checksum, "the header of a message was changed on its way"};
    if (read.version != protocol_version)
        return {refusal_reason::version, version_text(read.version, protocol_version)};
    if (zero != 0)
        return {refusal_reason::unexpected,
                format("a header says {} in its bytes 56 to 59, which are to be 0", zero)};
    if (!is_known(kind))
        return {refusal_reason::unexpected,
                format("a message of kind {}; 1 to {}, 24 and 25 are known", kind, message_kinds)};
    read.kind = static_cast<message_kind>(kind);
    parsed.body = message.subspan(frame_header_bytes);
    if (read.body_bytes != parsed.body.size())
        return {refusal_reason::size, format("a body of {} bytes where its header says {}",
                                             parsed.body.size(), read.body_bytes)};
    if (crc32c(parsed.body) != read.body_crc)
        return {refusal_reason::checksum, "the body of a message was changed on its way"};
    return {};
}

}  // namespace moorage::core

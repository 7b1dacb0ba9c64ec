// tampering_wire.h - a wire that changes, swallows or repeats a node's messages, to test the
// others.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/node/wire.h"
#include "tools/protocol/frame.h"

namespace moorage::test {

// The message. It may change the header, too; checksums are made anew. Returns the number of times
// to send it.
struct sent_frame {
    core::frame_header header;
    std::vector<std::byte> bytes;  // header and body
    std::span<std::byte> body() { return std::span(bytes).subspan(core::frame_header_bytes); }
};
using tampering = std::function<int(sent_frame &)>;

class tampering_wire final : public core::wire {
public:
    // Without a function it changes nothing.
    tampering_wire(std::unique_ptr<core::wire> through, tampering change)
        : through_(std::move(through)), change_(std::move(change)) {}

    core::result<std::string> listen(const std::string &address) override {
        return through_->listen(address);
    }
    core::result<uint64_t> connect(int32_t channel,
                                   std::span<const std::string> addresses) override {
        return through_->connect(channel, addresses);
    }
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts,
                  uint64_t user) override {
        if (!change_) return through_->send(connection, parts, user);
        const auto *first_byte = static_cast<const std::byte *>(parts[0].host_data);
        sent_frame message;
        message.bytes.assign(first_byte, first_byte + parts[0].bytes);
        core::frame whole;
        (void)core::read_frame(message.bytes, whole);
        message.header = whole.header;
        const std::vector<std::byte> original = message.bytes;
        const core::frame_header header = message.header;
        const int times = change_(message);
        if (message.bytes != original || !(message.header == header))
            core::end_frame(message.bytes, message.header);
        for (int i = 0; i < times; ++i) {
            const moorage_wire_part part{message.bytes.data(), message.bytes.size(), 0};
            // The bytes are gone when this returns, and no SENT is needed.
            while (through_->send(connection, {&part, 1}, user) == MOORAGE_WIRE_FULL) continue;
        }
        return MOORAGE_WIRE_DONE;
    }
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns) override {
        return through_->poll(events, wait_ns);
    }
    void wake() override { through_->wake(); }
    void release(uint64_t message) override { through_->release(message); }
    void close(uint64_t number, bool at_once) override { through_->close(number, at_once); }

private:
    std::unique_ptr<core::wire> through_;
    tampering change_;
};

}  // namespace moorage::test

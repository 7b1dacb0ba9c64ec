// wire_flow.cpp - makes connections of a wire under test, and sends messages that can be
// recognised.
#include "tools/moorage/check/wire_flow.h"

#include <algorithm>
#include <cstring>

#include "core/base/text.h"

namespace moorage::check {

using core::error;
using core::format;

core::result<std::unique_ptr<wire_pair>> wire_pair::make(const test_input &input,
                                                         const moorage_wire_limits &limits) {
    return make(input, limits, limits);
}

core::result<std::unique_ptr<wire_pair>> wire_pair::make(const test_input &input,
                                                         const moorage_wire_limits &near,
                                                         const moorage_wire_limits &far) {
    auto pair = std::make_unique<wire_pair>();
    for (auto [end, limits] : {std::pair{&pair->near, &near}, {&pair->far, &far}}) {
        auto opened = wire_end::make(input, *limits);
        if (!opened) return opened.failure();
        *end = std::move(opened).value();
    }
    const auto listening = pair->far->listen(input.wire_address, pair->address);
    if (!listening)
        return error{
            format("{}; --address says where this wire can listen", listening.failure().text)};
    pair->listener = *listening;
    return pair;
}

void wire_pair::poll_both(const std::function<void(wire_end &, const wire_event &)> &take) {
    for (wire_end *end : {near.get(), far.get()})
        for (const wire_event &event : end->poll()) take(*end, event);
}

core::result<std::vector<wire_event>> wire_pair::await_events(wire_end &awaited_end, int32_t kind,
                                                              size_t count) {
    std::vector<wire_event> found;
    const auto came = wait_until(
        format("event {} of wire.h", kind).c_str(),
        [&] {
            poll_both([&](wire_end &end, const wire_event &event) {
                if (&end == &awaited_end && event.kind() == kind)
                    found.push_back(event);
                else if (event.kind() == MOORAGE_WIRE_MESSAGE)
                    end.release(event.record.message);
            });
        },
        [&] { return found.size() >= count; });
    if (!came) return broken_rule().empty() ? came.failure() : error{broken_rule()};
    return found;
}

core::result<wire_link> wire_pair::connect(int32_t channel) {
    const auto begun = near->connect({address}, channel);
    if (!begun) return begun.failure();
    wire_link link;
    link.near = *begun;
    std::string ended;
    const auto met = wait_until(
        "a connection",
        [&] {
            poll_both([&](wire_end &end, const wire_event &event) {
                if (&end == near.get() && event.connection() == link.near) {
                    if (event.kind() == MOORAGE_WIRE_CONNECTED) link.connected = event;
                    if (event.kind() == MOORAGE_WIRE_CLOSED) ended = event.text;
                }
                if (&end == far.get() && event.kind() == MOORAGE_WIRE_ACCEPTED)
                    link.accepted = event, link.far = event.connection();
            });
        },
        [&] { return (link.connected.kind() != 0 && link.far != 0) || !ended.empty(); });
    if (!met) return broken_rule().empty() ? met.failure() : error{broken_rule()};
    if (!ended.empty()) return error{"no connection: " + ended};
    link.bytes_max = link.connected.record.bytes;
    return link;
}

std::string wire_pair::broken_rule() const {
    return near->broken_rule().empty() ? far->broken_rule() : near->broken_rule();
}

std::vector<unsigned char> message_of(uint64_t flow, uint64_t index, uint64_t bytes) {
    std::vector<unsigned char> message(bytes);
    uint64_t state = (flow * 0x9e3779b97f4a7c15 + index) * 0xbf58476d1ce4e5b9 + 1;
    for (size_t i = 0; i < message.size(); i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        std::memcpy(&message[i], &state, std::min<size_t>(8, message.size() - i));
    }
    return message;
}

void wire_flow::send(uint64_t most, uint32_t parts) {
    for (; most > 0 && next_ < count_; --most) {
        auto bytes = message_of(seed_, next_, sizes_(next_));
        std::vector<moorage_wire_part> pieces;
        const uint64_t step = std::max<uint64_t>(1, bytes.size() / parts);
        for (uint64_t offset = 0; offset < bytes.size();) {
            const bool last = pieces.size() + 1 == parts || offset + step >= bytes.size();
            const uint64_t part_bytes = last ? bytes.size() - offset : step;
            pieces.push_back({bytes.data() + offset, part_bytes, 0});
            offset += part_bytes;
        }
        const uint64_t user = seed_ << 32 | next_;
        const uint32_t answer = sender_.send(send_connection_, pieces, user);
        full_ = answer == MOORAGE_WIRE_FULL;
        if (full_) return;
        if (answer != MOORAGE_WIRE_DONE && answer != MOORAGE_WIRE_TAKEN) {
            if (fault_text_.empty())
                fault_text_ =
                    format("send of message {} answers {} {}", next_, answer, sender_.refusal());
            return;
        }
        taken_bytes_ += bytes.size();
        ++next_;
        if (answer == MOORAGE_WIRE_TAKEN)
            borrowed_[user] = std::move(bytes);
        else
            overwrite(std::move(bytes));
    }
}

// Overwrites the bytes and keeps them. If the wire still reads them, the other end sees it, and
// nothing crashes.
void wire_flow::overwrite(std::vector<unsigned char> bytes) {
    std::fill(bytes.begin(), bytes.end(), 0xee);
    if (bytes.size() > (1 << 20)) return;
    overwritten_.push_back(std::move(bytes));
    if (overwritten_.size() > 64) overwritten_.pop_front();
}

bool wire_flow::handle_event(wire_end &end, const wire_event &event) {
    if (&end == &sender_ && event.connection() == send_connection_) {
        if (event.kind() == MOORAGE_WIRE_SENT) {
            const auto lent = borrowed_.find(event.record.user);
            if (lent == borrowed_.end()) return false;
            overwrite(std::move(lent->second));
            borrowed_.erase(lent);
            return true;
        }
        if (event.kind() == MOORAGE_WIRE_WRITABLE) full_ = false;
        if (event.kind() == MOORAGE_WIRE_CLOSED) close_text_ = event.text;
    }
    if (&end == &sender_ || event.kind() != MOORAGE_WIRE_MESSAGE ||
        event.connection() != receive_connection_)
        return false;
    const uint64_t bytes = arrived_ < count_ ? sizes_(arrived_) : 0;
    const auto expected = message_of(seed_, arrived_, bytes);
    const auto got = event.data();
    if (fault_text_.empty() && got.size() != expected.size())
        fault_text_ = format("message {} has {} bytes, {} were sent: lost, doubled or out of order",
                             arrived_, got.size(), expected.size());
    if (fault_text_.empty() && std::memcmp(expected.data(), got.data(), expected.size()) != 0)
        fault_text_ = format(
            "message {} of {} bytes arrives otherwise than it was sent, from byte {}", arrived_,
            bytes,
            std::mismatch(expected.begin(), expected.end(), got.begin()).first - expected.begin());
    ++arrived_;
    return true;
}

}  // namespace moorage::check

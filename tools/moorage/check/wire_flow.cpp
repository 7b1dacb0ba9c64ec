// wire_flow.cpp - makes connections of a wire under test, and sends messages that can be
// recognised.
#include "tools/moorage/check/wire_flow.h"

#include <algorithm>
#include <cstring>

#include "core/base/text.h"

namespace moorage::check {

using core::error;
using core::format;

core::result<std::unique_ptr<wire_pair>> wire_pair::make(const subject &of,
                                                         const moorage_wire_limits &limits) {
    return make(of, limits, limits);
}

core::result<std::unique_ptr<wire_pair>> wire_pair::make(const subject &of,
                                                         const moorage_wire_limits &near,
                                                         const moorage_wire_limits &far) {
    auto made = std::make_unique<wire_pair>();
    for (auto [end, limits] : {std::pair{&made->near, &near}, {&made->far, &far}}) {
        auto opened = wire_end::make(of, *limits);
        if (!opened) return opened.failure();
        *end = std::move(opened).value();
    }
    const auto listening = made->far->listen(of.wire_address, made->address);
    if (!listening)
        return error{
            format("{}; --address says where this wire can listen", listening.failure().text)};
    made->listener = *listening;
    return made;
}

void wire_pair::turn(const std::function<void(wire_end &, const heard &)> &take) {
    for (wire_end *end : {near.get(), far.get()})
        for (const heard &one : end->poll()) take(*end, one);
}

core::result<std::vector<heard>> wire_pair::await(wire_end &at, int32_t kind, size_t count) {
    std::vector<heard> found;
    const auto came = until(
        format("event {} of wire.h", kind).c_str(),
        [&] {
            turn([&](wire_end &end, const heard &one) {
                if (&end == &at && one.kind() == kind)
                    found.push_back(one);
                else if (one.kind() == MOORAGE_WIRE_MESSAGE)
                    end.release(one.event.message);
            });
        },
        [&] { return found.size() >= count; });
    if (!came) return broken().empty() ? came.failure() : error{broken()};
    return found;
}

core::result<wire_link> wire_pair::meet(int32_t channel) {
    const auto begun = near->connect({address}, channel);
    if (!begun) return begun.failure();
    wire_link link;
    link.near = *begun;
    std::string ended;
    const auto met = until(
        "a connection",
        [&] {
            turn([&](wire_end &end, const heard &one) {
                if (&end == near.get() && one.of() == link.near) {
                    if (one.kind() == MOORAGE_WIRE_CONNECTED) link.connected = one;
                    if (one.kind() == MOORAGE_WIRE_CLOSED) ended = one.words;
                }
                if (&end == far.get() && one.kind() == MOORAGE_WIRE_ACCEPTED)
                    link.accepted = one, link.far = one.of();
            });
        },
        [&] { return (link.connected.kind() != 0 && link.far != 0) || !ended.empty(); });
    if (!met) return broken().empty() ? met.failure() : error{broken()};
    if (!ended.empty()) return error{"no connection: " + ended};
    link.bytes_max = link.connected.event.bytes;
    return link;
}

std::string wire_pair::broken() const {
    return near->broken().empty() ? far->broken() : near->broken();
}

std::vector<unsigned char> message_of(uint64_t flow, uint64_t index, uint64_t bytes) {
    std::vector<unsigned char> made(bytes);
    uint64_t state = (flow * 0x9e3779b97f4a7c15 + index) * 0xbf58476d1ce4e5b9 + 1;
    for (size_t i = 0; i < made.size(); i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        std::memcpy(&made[i], &state, std::min<size_t>(8, made.size() - i));
    }
    return made;
}

void wire_flow::send(uint64_t most, uint32_t parts) {
    for (; most > 0 && next_ < count_; --most) {
        auto bytes = message_of(seed_, next_, sizes_(next_));
        std::vector<moorage_wire_part> cut;
        const uint64_t step = std::max<uint64_t>(1, bytes.size() / parts);
        for (uint64_t at = 0; at < bytes.size();) {
            const bool last = cut.size() + 1 == parts || at + step >= bytes.size();
            const uint64_t here = last ? bytes.size() - at : step;
            cut.push_back({bytes.data() + at, here, 0});
            at += here;
        }
        const uint64_t user = seed_ << 32 | next_;
        const uint32_t did = from_.send(out_, cut, user);
        full_ = did == MOORAGE_WIRE_FULL;
        if (full_) return;
        if (did != MOORAGE_WIRE_DONE && did != MOORAGE_WIRE_TAKEN) {
            if (wrong_.empty())
                wrong_ = format("send of message {} answers {} {}", next_, did, from_.refusal());
            return;
        }
        taken_bytes_ += bytes.size();
        ++next_;
        if (did == MOORAGE_WIRE_TAKEN)
            borrowed_[user] = std::move(bytes);
        else
            take_back(std::move(bytes));
    }
}

// Overwrites the bytes and keeps them. If the wire still reads them, the other end sees it, and
// nothing crashes.
void wire_flow::take_back(std::vector<unsigned char> bytes) {
    std::fill(bytes.begin(), bytes.end(), 0xee);
    if (bytes.size() > (1 << 20)) return;
    taken_back_.push_back(std::move(bytes));
    if (taken_back_.size() > 64) taken_back_.pop_front();
}

bool wire_flow::hear(wire_end &at, const heard &one) {
    if (&at == &from_ && one.of() == out_) {
        if (one.kind() == MOORAGE_WIRE_SENT) {
            const auto lent = borrowed_.find(one.event.user);
            if (lent == borrowed_.end()) return false;
            take_back(std::move(lent->second));
            borrowed_.erase(lent);
            return true;
        }
        if (one.kind() == MOORAGE_WIRE_WRITABLE) full_ = false;
        if (one.kind() == MOORAGE_WIRE_CLOSED) ended_ = one.words;
    }
    if (&at == &from_ || one.kind() != MOORAGE_WIRE_MESSAGE || one.of() != into_) return false;
    const uint64_t bytes = arrived_ < count_ ? sizes_(arrived_) : 0;
    const auto wanted = message_of(seed_, arrived_, bytes);
    const auto got = one.data();
    if (wrong_.empty() && got.size() != wanted.size())
        wrong_ = format("message {} has {} bytes, {} were sent: lost, doubled or out of order",
                        arrived_, got.size(), wanted.size());
    if (wrong_.empty() && std::memcmp(wanted.data(), got.data(), wanted.size()) != 0)
        wrong_ = format(
            "message {} of {} bytes arrives otherwise than it was sent, from byte {}", arrived_,
            bytes, std::mismatch(wanted.begin(), wanted.end(), got.begin()).first - wanted.begin());
    ++arrived_;
    return true;
}

}  // namespace moorage::check

// loop_wire.h - a wire between nodes of one process, for tests. Messages are copied from one to the
// other under a lock. Every few messages it keeps the memory until SENT, and every few it says FULL
// once, so that callers meet both.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "tools/node/wire.h"

namespace moorage::test {

using moorage::core::error;
using moorage::core::format;
using moorage::core::result;

class loop_wire;

// State that all wires of one network share.
struct loop_hub {
    std::mutex guard;
    std::map<std::string, loop_wire *> listeners;
    uint64_t next_number = 1;
};

class loop_wire final : public core::wire {
public:
    // `identity`: the proof that it shows to others; empty: nobody proves anything.
    explicit loop_wire(loop_hub &hub, std::string identity = "")
        : hub_(hub), identity_(std::move(identity)) {}
    // Like a process that dies: connected peers find the connection lost.
    ~loop_wire() override { die(); }
    void die() {
        const std::lock_guard lock(hub_.guard);
        std::erase_if(hub_.listeners,
                      [&](const auto &listener) { return listener.second == this; });
        while (!ends_.empty()) part(ends_.begin()->first, MOORAGE_WIRE_LOST);
        events_.clear();
    }

    result<std::string> listen(const std::string &address) override {
        const std::lock_guard lock(hub_.guard);
        if (!hub_.listeners.emplace(address, this).second)
            return error{format("{} is taken", address)};
        return address;
    }
    result<uint64_t> connect(int32_t channel, std::span<const std::string> addresses) override {
        const std::lock_guard lock(hub_.guard);
        const uint64_t local_number = hub_.next_number++;
        for (const std::string &address : addresses) {
            const auto listener = hub_.listeners.find(address);
            if (listener == hub_.listeners.end()) continue;
            const uint64_t remote_number = hub_.next_number++;
            ends_[local_number] = {listener->second, remote_number};
            listener->second->ends_[remote_number] = {this, local_number};
            happens({.kind = MOORAGE_WIRE_CONNECTED,
                     .channel = channel,
                     .connection = local_number,
                     .identity = listener->second->identity_.c_str()});
            listener->second->happens({.kind = MOORAGE_WIRE_ACCEPTED,
                                       .channel = channel,
                                       .connection = remote_number,
                                       .identity = identity_.c_str()});
            return local_number;
        }
        happens({.kind = MOORAGE_WIRE_CLOSED,
                 .reason = MOORAGE_WIRE_UNREACHABLE,
                 .connection = local_number});
        return local_number;
    }
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts,
                  uint64_t user) override {
        const std::lock_guard lock(hub_.guard);
        const auto found = ends_.find(connection);
        if (found == ends_.end()) return MOORAGE_WIRE_GONE;
        if (++sent_ % 7 == 0) {
            happens({.kind = MOORAGE_WIRE_WRITABLE, .connection = connection});
            return MOORAGE_WIRE_FULL;
        }
        auto bytes = std::make_unique<std::vector<std::byte>>();
        for (const moorage_wire_part &part : parts) {
            const auto *source = static_cast<const std::byte *>(part.host_data);
            bytes->insert(bytes->end(), source, source + part.bytes);
        }
        loop_wire &peer = *found->second.peer;
        const uint64_t number = hub_.next_number++;
        event came{.kind = MOORAGE_WIRE_MESSAGE,
                   .connection = found->second.number,
                   .message = number,
                   .data = bytes->data(),
                   .bytes = bytes->size()};
        peer.lent_[number] = std::move(bytes);
        peer.happens(came);
        if (sent_ % 3 != 0) return MOORAGE_WIRE_DONE;
        happens({.kind = MOORAGE_WIRE_SENT, .connection = connection, .user = user});
        return MOORAGE_WIRE_TAKEN;
    }
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns) override {
        std::unique_lock lock(hub_.guard);
        came_.wait_for(lock, std::chrono::nanoseconds(std::min<uint64_t>(wait_ns, 1'000'000'000)),
                       [&] { return woken_ || !events_.empty(); });
        woken_ = false;
        uint32_t count = 0;
        for (; count < events.size() && !events_.empty(); ++count, events_.pop_front()) {
            const event &source = events_.front();
            moorage_wire_event &target = events[count];
            target = {};
            target.kind = source.kind;
            target.channel = source.channel;
            target.reason = source.reason;
            target.connection = source.connection;
            target.user = source.user;
            target.message = source.message;
            target.plugin_data = source.data;
            target.bytes = source.bytes;
            target.flags = *source.identity ? uint32_t{MOORAGE_WIRE_SECURE} : 0;
            target.plugin_identity = source.identity;
            target.plugin_text = "";
            target.plugin_address = "loop";
        }
        return count;
    }
    void wake() override {
        const std::lock_guard lock(hub_.guard);
        woken_ = true;
        came_.notify_one();
    }
    void release(uint64_t message) override {
        const std::lock_guard lock(hub_.guard);
        lent_.erase(message);
    }
    void close(uint64_t number, bool) override {
        const std::lock_guard lock(hub_.guard);
        if (ends_.contains(number)) part(number, MOORAGE_WIRE_BY_PEER);
    }
    size_t lent() {
        const std::lock_guard lock(hub_.guard);
        return lent_.size();
    }

private:
    struct event {
        int32_t kind = 0, channel = 0, reason = 0;
        uint64_t connection = 0, user = 0, message = 0;
        const void *data = nullptr;
        uint64_t bytes = 0;
        const char *identity = "";  // of a wire that outlives the event
    };
    struct end {
        loop_wire *peer;
        uint64_t number;  // of the connection there
    };
    void happens(const event &event) {
        events_.push_back(event);
        came_.notify_one();
    }
    void part(uint64_t number, int32_t reason) {
        const end removed = ends_.at(number);
        ends_.erase(number);
        removed.peer->ends_.erase(removed.number);
        happens(
            {.kind = MOORAGE_WIRE_CLOSED, .reason = MOORAGE_WIRE_BY_HOST, .connection = number});
        removed.peer->happens(
            {.kind = MOORAGE_WIRE_CLOSED, .reason = reason, .connection = removed.number});
    }

    loop_hub &hub_;
    const std::string identity_;
    std::condition_variable came_;
    std::deque<event> events_;
    std::map<uint64_t, end> ends_;
    std::map<uint64_t, std::unique_ptr<std::vector<std::byte>>> lent_;
    uint64_t sent_ = 0;
    bool woken_ = false;
};

}  // namespace moorage::test

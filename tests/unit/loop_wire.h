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
#include "core/node/wire.h"

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
        std::erase_if(hub_.listeners, [&](const auto &one) { return one.second == this; });
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
        const uint64_t here = hub_.next_number++;
        for (const std::string &address : addresses) {
            const auto at = hub_.listeners.find(address);
            if (at == hub_.listeners.end()) continue;
            const uint64_t there = hub_.next_number++;
            ends_[here] = {at->second, there};
            at->second->ends_[there] = {this, here};
            happens({.kind = MOORAGE_WIRE_CONNECTED,
                     .channel = channel,
                     .connection = here,
                     .identity = at->second->identity_.c_str()});
            at->second->happens({.kind = MOORAGE_WIRE_ACCEPTED,
                                 .channel = channel,
                                 .connection = there,
                                 .identity = identity_.c_str()});
            return here;
        }
        happens(
            {.kind = MOORAGE_WIRE_CLOSED, .reason = MOORAGE_WIRE_UNREACHABLE, .connection = here});
        return here;
    }
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts,
                  uint64_t user) override {
        const std::lock_guard lock(hub_.guard);
        const auto at = ends_.find(connection);
        if (at == ends_.end()) return MOORAGE_WIRE_GONE;
        if (++sent_ % 7 == 0) {
            happens({.kind = MOORAGE_WIRE_WRITABLE, .connection = connection});
            return MOORAGE_WIRE_FULL;
        }
        auto bytes = std::make_unique<std::vector<std::byte>>();
        for (const moorage_wire_part &part : parts) {
            const auto *from = static_cast<const std::byte *>(part.host_data);
            bytes->insert(bytes->end(), from, from + part.bytes);
        }
        loop_wire &other = *at->second.other;
        const uint64_t number = hub_.next_number++;
        event came{.kind = MOORAGE_WIRE_MESSAGE,
                   .connection = at->second.number,
                   .message = number,
                   .data = bytes->data(),
                   .bytes = bytes->size()};
        other.lent_[number] = std::move(bytes);
        other.happens(came);
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
            const event &of = events_.front();
            moorage_wire_event &out = events[count];
            out = {};
            out.kind = of.kind;
            out.channel = of.channel;
            out.reason = of.reason;
            out.connection = of.connection;
            out.user = of.user;
            out.message = of.message;
            out.plugin_data = of.data;
            out.bytes = of.bytes;
            out.flags = *of.identity ? uint32_t{MOORAGE_WIRE_SECURE} : 0;
            out.plugin_identity = of.identity;
            out.plugin_text = "";
            out.plugin_address = "loop";
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
        loop_wire *other;
        uint64_t number;  // of the connection there
    };
    void happens(const event &of) {
        events_.push_back(of);
        came_.notify_one();
    }
    void part(uint64_t number, int32_t reason) {
        const end of = ends_.at(number);
        ends_.erase(number);
        of.other->ends_.erase(of.number);
        happens(
            {.kind = MOORAGE_WIRE_CLOSED, .reason = MOORAGE_WIRE_BY_HOST, .connection = number});
        of.other->happens({.kind = MOORAGE_WIRE_CLOSED, .reason = reason, .connection = of.number});
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

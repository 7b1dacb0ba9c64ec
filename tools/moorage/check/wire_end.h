// wire_end.h - one open instance of a wire under test. Each event is checked by the rules of
// wire.h.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "tools/moorage/check/actor.h"
#include "tools/moorage/check/check.h"
#include "tools/moorage/check/world.h"

namespace moorage::check {

// An event with copies of its texts, because the wire's own are valid only until the next poll.
struct wire_event {
    moorage_wire_event record;
    std::string identity, address, text;

    int32_t kind() const { return record.kind; }
    uint64_t connection() const { return record.connection; }
    std::span<const unsigned char> data() const {
        return {static_cast<const unsigned char *>(record.plugin_data), record.bytes};
    }
};

// Room for a few thousand small messages, or one long message at a time.
moorage_wire_limits usual_wire_limits();

class wire_end {
public:
    // Creates, activates and opens a wire, or returns the error.
    static core::result<std::unique_ptr<wire_end>> make(const test_input &input,
                                                        const moorage_wire_limits &limits);

    core::result<uint64_t> listen(const std::string &address, std::string &bound);
    core::result<uint64_t> connect(const std::vector<std::string> &addresses, int32_t channel,
                                   const char *identity = nullptr);
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts, uint64_t user);
    std::vector<wire_event> poll(uint64_t wait_ns = 0, uint32_t capacity = 64);
    void wake();
    void release(uint64_t message);
    void close(uint64_t number, bool at_once);
    void pace(uint64_t connection, uint64_t bytes_per_s);
    core::result<uint64_t> remember(const void *memory, uint64_t bytes);
    void forget(uint64_t memory);
    // The instance ends as if its process did.
    void end() { actor_->deactivate(); }

    const moorage_wire &calls() const { return *actor_->wire; }
    // The first rule that an event broke; "" while all is well.
    const std::string &broken_rule() const { return broken_rule_; }
    // Whether the wire took this message and has not told SENT yet.
    bool waits_for_sent(uint64_t connection, uint64_t user) const {
        return borrowed_messages_.contains({connection, user});
    }
    const std::string &refusal() const { return refusal_; }

private:
    wire_end() : world_(world_options{}) {}
    core::status control(core::entry_point which,
                         const std::function<int32_t(moorage_plugin *)> &work);
    void blame(const std::string &text) {
        if (broken_rule_.empty()) broken_rule_ = text;
    }
    void check_event(const wire_event &event);
    void check_number(const wire_event &event);
    void check_message(const wire_event &event);

    world world_;
    std::unique_ptr<actor> actor_;
    enum class state { begun, open, listening };
    std::map<uint64_t, state> states_;
    std::set<uint64_t> used_numbers_;  // every number there ever was
    std::set<uint64_t> lent_messages_;
    std::set<std::pair<uint64_t, uint64_t>> borrowed_messages_;  // connection, user
    std::set<uint64_t> full_connections_;  // connections that wait for WRITABLE
    std::string broken_rule_, refusal_;
};

// The ratio of --timeout to its default. Waits within a test use it too.
inline double patience = 1;

// Calls `turn` until `done` returns true, for at most `limit_s` times `patience` seconds. The error
// names the missing event.
template <class Turn, class Done>
core::status wait_until(const char *event_name, Turn &&turn, Done &&done, double limit_s = 5) {
    limit_s *= patience;
    const auto begin = std::chrono::steady_clock::now();
    while (!done()) {
        turn();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (took.count() > limit_s)
            return core::error{
                core::format("{} did not come about within {} s", event_name, limit_s)};
    }
    return core::success();
}

}  // namespace moorage::check

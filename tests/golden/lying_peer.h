// lying_peer.h - a peer that greets as a node does and then sends faulty messages of every kind.
// They are cut short, or a count or a value is out of range.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tools/node/peer_node.h"
#include "tests/unit/loop_wire.h"

namespace moorage::test {

// The places of a count and of a value that must not be 0xffffffff in a body; none: it has none.
struct body_place {
    core::message_kind kind;
    int count = none, value = none;
    static constexpr int none = -1;
};

// Every kind of docs/protocol.md, once.
constexpr body_place body_places[] = {
    {core::message_kind::hello, 48, 32},  {core::message_kind::welcome, 48, 32},
    {core::message_kind::refusal, 12, 0}, {core::message_kind::call, 20, 0},
    {core::message_kind::reply, 16, 0},   {core::message_kind::failed, 12, 0},
    {core::message_kind::cancel},         {core::message_kind::ping},
    {core::message_kind::pong},           {core::message_kind::statistics, 24},
    {core::message_kind::goodbye, 12, 0}, {core::message_kind::weights_wanted, 16, 0},
    {core::message_kind::weights, 16, 0}, {core::message_kind::ask, 4, 0},
    {core::message_kind::tokens, 8, 0}};
static_assert(std::size(body_places) == core::message_kinds + 2);

enum class lie { cut, count, value };
constexpr const char *lie_names[] = {"cut short", "a count or length beyond", "a wrong value"};

// The greeting of a node with this plan.
inline core::greeting greeting_of(const core::node_plan &plan, std::string_view server) {
    return {core::feature_weights, plan.cluster,     plan.model, plan.plan, plan.sizes, server,
            plan.model_name,       "somebody else's"};
}

// A sound message of the kind, without its header.
inline core::message_bytes sound_message(core::message_kind kind, const core::node_plan &plan) {
    using core::message_kind;
    core::message_bytes message;
    core::begin_frame(message);
    const std::vector<core::expert_rows> experts = {{0, 1}};
    const std::vector<uint32_t> row_of = {0};
    const std::vector<int32_t> ids = {1, 2};
    const std::vector<uint64_t> counts(plan.pages(), 1);
    const std::vector<std::byte> bytes(64);
    const auto zero = [](std::span<float> room) { std::ranges::fill(room, 0.f); };
    switch (kind) {
        case message_kind::hello:
        case message_kind::welcome:
            write(message, greeting_of(plan, ""));
            break;
        case message_kind::refusal:
        case message_kind::failed:
        case message_kind::goodbye:
            write(message,
                  core::refusal_view{.reason = core::refusal_reason::busy, .text = "not now"});
            break;
        case message_kind::call:
            zero(write(message, core::call_view{0, 1, 0, experts, row_of, {}}, plan.sizes.hidden));
            break;
        case message_kind::reply:
            zero(write(message, core::reply_view{0, 0, 0, 1, {}}, plan.sizes.hidden));
            break;
        case message_kind::cancel:
            break;
        case message_kind::ping:
            write(message, core::ping_view{7});
            break;
        case message_kind::pong:
            write(message, core::pong_view{7, 8, 9, 0, 0});
            break;
        case message_kind::statistics:
            write(message, core::statistics_view{1, 2, 3, counts});
            break;
        case message_kind::weights_wanted:
            write(message, core::weights_range{0, 0, 0, 64});
            break;
        case message_kind::weights:
            write(message, core::weights_view{{0, 0, 0, 64}, 64, bytes});
            break;
        case message_kind::ask:
            write(message, core::ask_view{1, ids});
            break;
        case message_kind::tokens:
            write(message, core::tokens_view{false, 0, ids});
            break;
    }
    return message;
}

// Spoils a message; false if a message of the kind has no place for this fault.
inline bool spoil(core::message_bytes &message, const body_place &places, lie fault) {
    if (fault == lie::cut) {
        if (message.size() == core::frame_header_bytes) return false;
        message.resize(message.size() - 4);
    } else if (fault == lie::count && places.count == body_place::none) {
        message.resize(message.size() + 8);
    } else {
        const int place = fault == lie::count ? places.count : places.value;
        if (place == body_place::none) return false;
        std::fill_n(message.begin() + core::frame_header_bytes + place, 4, std::byte{0xff});
    }
    return true;
}

// The messages that a lying peer received from its victim.
struct peer_answer {
    bool closed = false;
    core::refusal_reason reason = core::refusal_reason::none;  // of a refusal
    std::string text;
};

// One end of a connection, driven by hand.
class lying_peer {
public:
    lying_peer(loop_hub &hub, const core::node_plan &plan, uint32_t server)
        : wire_(hub), plan_(plan), server_(server) {}

    bool listen(const std::string &address) { return wire_.listen(address).ok(); }
    void connect(const std::string &address) {
        const std::vector<std::string> addresses = {address};
        connection_ = *wire_.connect(MOORAGE_WIRE_CALLS, addresses);
    }
    void greet(core::message_kind kind) {
        core::message_bytes says;
        core::begin_frame(says);
        const bool named = server_ < plan_.servers.size();
        write(says, greeting_of(plan_, named ? std::string_view(plan_.servers[server_].name) : ""));
        say(std::move(says), kind, 0);
    }
    void say(core::message_bytes &&written, core::message_kind kind, uint64_t id) {
        core::end_frame(
            written,
            {.kind = kind, .sender = server_, .incarnation = 9, .epoch = plan_.epoch, .id = id});
        const moorage_wire_part part{written.data(), written.size(), 0};
        while (wire_.send(connection_, {&part, 1}, 1) == MOORAGE_WIRE_FULL) continue;
    }
    // Reads messages until `is_last` returns true, which sees each message, or until the time is
    // up.
    template <class IsLast>
    peer_answer hear(uint64_t wait_ns, IsLast is_last) {
        peer_answer answer;
        const uint64_t end_ns = core::steady_ns() + wait_ns;
        while (core::steady_ns() < end_ns) {
            moorage_wire_event event;
            if (wire_.poll({&event, 1}, 10'000'000) == 0) continue;
            if (event.kind == MOORAGE_WIRE_ACCEPTED) connection_ = event.connection;
            if (event.kind == MOORAGE_WIRE_CLOSED && event.connection == connection_) {
                answer.closed = true;
                return answer;
            }
            if (event.kind != MOORAGE_WIRE_MESSAGE) continue;
            core::frame received;
            const std::span bytes(static_cast<const std::byte *>(event.plugin_data),
                                  static_cast<size_t>(event.bytes));
            if (read_frame(bytes, received).reason != core::refusal_reason::none) continue;
            core::refusal_view refusal;
            if (received.header.kind == core::message_kind::refusal &&
                read(received.body, refusal).reason == core::refusal_reason::none)
                answer.reason = refusal.reason, answer.text = refusal.text;
            const bool enough = is_last(received);
            wire_.release(event.message);
            if (enough) return answer;
        }
        return answer;
    }

private:
    loop_wire wire_;
    const core::node_plan &plan_;
    const uint32_t server_;
    uint64_t connection_ = 0;
};

}  // namespace moorage::test

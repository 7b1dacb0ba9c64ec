// wire_end.cpp - calls of a wire, and the rules that hold for every event.
#include "tools/moorage/check/wire_end.h"

#include <cstring>
#include <optional>

#include "core/base/text.h"

namespace moorage::check {

using core::error;
using core::format;

namespace {

// Fills events before a call, to show which the wire did not write.
constexpr uint64_t untouched = 0x5a5a5a5a5a5a5a5a;

}  // namespace

moorage_wire_limits usual_wire_limits() {
    moorage_wire_limits limits{};
    limits.size = sizeof(limits);
    limits.connections_max = 16, limits.handshakes_max = 16, limits.handshakes_per_s = 1000;
    limits.queue_messages_max = 20'000;
    limits.message_bytes_max[MOORAGE_WIRE_CALLS] = limits.message_bytes_max[MOORAGE_WIRE_BULK] =
        16 << 20;
    limits.queue_bytes_max = 4 << 20, limits.receive_bytes_max = 32 << 20;
    limits.connect_ns = 3'000'000'000, limits.close_ns = 3'000'000'000;
    return limits;
}

core::result<std::unique_ptr<wire_end>> wire_end::make(const test_input &input,
                                                       const moorage_wire_limits &limits) {
    std::unique_ptr<wire_end> end(new wire_end);
    auto instance = hosted_actor(*input.policy, input.params, end->world_.environment());
    if (!instance) return instance.failure();
    end->actor_ = std::move(instance).value();
    if (auto active = end->actor_->activate(end->world_.limits); !active) return active.failure();
    const auto opened = end->control(core::entry_point::wire_open, [&](moorage_plugin *plugin) {
        return end->calls().open(plugin, &limits);
    });
    if (!opened) return opened.failure();
    return end;
}

core::status wire_end::control(core::entry_point which,
                               const std::function<int32_t(moorage_plugin *)> &work) {
    const core::status done = actor_->control(which, work);
    if (!done && done.failure().text.ends_with("no text given"))
        blame(format("{} fails without a text; call set_error", core::name_of(which)));
    return done;
}

core::result<uint64_t> wire_end::listen(const std::string &address, std::string &bound) {
    std::vector<char> room(MOORAGE_WIRE_ADDRESS_MAX + 8, 'Z');
    uint64_t number = 0;
    const auto done = control(core::entry_point::wire_listen, [&](moorage_plugin *plugin) {
        return calls().listen(plugin, address.c_str(), room.data(), &number);
    });
    if (!done) return done.failure();
    if (std::memchr(room.data(), 0, MOORAGE_WIRE_ADDRESS_MAX) == nullptr ||
        std::string(room.end() - 8, room.end()) != "ZZZZZZZZ")
        return error{"listen writes an address beyond MOORAGE_WIRE_ADDRESS_MAX bytes"};
    bound = room.data();
    if (number == 0 || !used_numbers_.insert(number).second)
        return error{format("listen gives number {}, which is 0 or was used", number)};
    states_[number] = state::listening;
    return number;
}

core::result<uint64_t> wire_end::connect(const std::vector<std::string> &addresses, int32_t channel,
                                         const char *identity) {
    std::vector<const char *> texts;
    for (const std::string &address : addresses) texts.push_back(address.c_str());
    moorage_wire_target target{
        sizeof(target), channel, texts.data(), static_cast<uint32_t>(texts.size()), 0, identity};
    uint64_t number = 0;
    const auto done = control(core::entry_point::wire_connect, [&](moorage_plugin *plugin) {
        return calls().connect(plugin, &target, &number);
    });
    if (!done) return done.failure();
    if (number == 0 || !used_numbers_.insert(number).second)
        return error{format("connect gives number {}, which is 0 or was used", number)};
    states_[number] = state::begun;
    return number;
}

uint32_t wire_end::send(uint64_t connection, std::span<const moorage_wire_part> parts,
                        uint64_t user) {
    const auto send_once = [&] {
        const core::policy_call running_call(actor_->owner, core::entry_point::wire_send);
        return calls().send(actor_->plugin, connection, parts.data(),
                            static_cast<uint32_t>(parts.size()), user);
    };
    const uint32_t answer = send_once();
    if (answer == MOORAGE_WIRE_REFUSED) {  // again, for its text
        const auto refusal =
            actor_->control(core::entry_point::wire_send, [&](moorage_plugin *) -> int32_t {
                return send_once() == MOORAGE_WIRE_REFUSED ? MOORAGE_INVALID_ARGUMENT : MOORAGE_OK;
            });
        refusal_ = refusal ? "" : refusal.failure().text;
        if (refusal_.empty() || refusal_.ends_with("no text given"))
            blame("send refuses a message without a text; call set_error");
    }
    if (answer > MOORAGE_WIRE_REFUSED) blame(format("send answers {}, which is no answer", answer));
    if (answer == MOORAGE_WIRE_TAKEN) borrowed_messages_.insert({connection, user});
    if (answer == MOORAGE_WIRE_FULL) full_connections_.insert(connection);
    const auto entry = states_.find(connection);
    if (answer <= MOORAGE_WIRE_FULL && (entry == states_.end() || entry->second != state::open))
        blame("send takes a message for a connection that is not open");
    return answer;
}

std::vector<wire_event> wire_end::poll(uint64_t wait_ns, uint32_t capacity) {
    std::vector<moorage_wire_event> room(capacity + 2);
    std::memset(static_cast<void *>(room.data()), 0x5a, room.size() * sizeof(room[0]));
    uint32_t count = 0;
    {
        const core::policy_call running_call(actor_->owner, core::entry_point::wire_poll);
        count = calls().poll(actor_->plugin, room.data(), capacity, wait_ns);
    }
    std::vector<wire_event> events;
    if (count > capacity) {
        blame(format("poll says {} events where {} have room", count, capacity));
        return events;
    }
    if (room[capacity].connection != untouched || room[capacity].user != untouched)
        blame("poll writes beyond the capacity");
    for (uint32_t i = 0; i < count; ++i) {
        const moorage_wire_event &event = room[i];
        if (!event.plugin_identity || !event.plugin_address || !event.plugin_text) {
            blame("a text of an event is null; \"\" where there is none");
            return events;
        }
        events.push_back({event, event.plugin_identity, event.plugin_address, event.plugin_text});
        check_event(events.back());
    }
    return events;
}

void wire_end::check_event(const wire_event &event) {
    switch (event.kind()) {
        case MOORAGE_WIRE_MESSAGE:
            return check_message(event);
        case MOORAGE_WIRE_SENT:
            if (borrowed_messages_.erase({event.connection(), event.record.user}) == 0)
                blame(format("SENT for user {} of connection {}, which borrows nothing",
                             event.record.user, event.connection()));
            return check_number(event);
        case MOORAGE_WIRE_WRITABLE:
            if (full_connections_.erase(event.connection()) == 0)
                blame("WRITABLE without FULL before it, or twice");
            return check_number(event);
        case MOORAGE_WIRE_TURNED_AWAY:
            if (event.record.count == 0) blame("TURNED_AWAY of nobody: count is 0");
            if (event.text.empty()) blame("TURNED_AWAY without a word why");
            if (event.record.reason < MOORAGE_WIRE_BY_HOST ||
                event.record.reason > MOORAGE_WIRE_TOO_SLOW)
                blame(format("reason {} is unknown", event.record.reason));
            return;
        case MOORAGE_WIRE_CONNECTED:
        case MOORAGE_WIRE_ACCEPTED:
        case MOORAGE_WIRE_CLOSED:
            return check_number(event);
        default:
            blame(format("event of kind {}, which there is not", event.kind()));
    }
}

void wire_end::check_number(const wire_event &event) {
    const uint64_t number = event.connection();
    const auto entry = states_.find(number);
    if (event.kind() == MOORAGE_WIRE_ACCEPTED) {
        if (number == 0 || !used_numbers_.insert(number).second)
            return blame(format("ACCEPTED with number {}, which is 0 or was used", number));
        states_[number] = state::open;
        if (!states_.contains(event.record.listener))
            blame("ACCEPTED by a listener that is unknown");
    } else if (entry == states_.end()) {
        return blame(format("event of kind {} for number {}, which is none, or closed",
                            event.kind(), number));
    }
    if (event.kind() == MOORAGE_WIRE_CONNECTED) {
        if (entry->second != state::begun) blame("CONNECTED twice, or for what was not begun");
        entry->second = state::open;
    }
    if (event.kind() == MOORAGE_WIRE_CLOSED) {
        if (event.record.reason < MOORAGE_WIRE_BY_HOST ||
            event.record.reason > MOORAGE_WIRE_TOO_SLOW)
            blame(format("CLOSED for reason {}, which there is not", event.record.reason));
        if (event.text.empty()) blame("CLOSED without a word why");
        states_.erase(number);
        full_connections_.erase(number);
        std::erase_if(borrowed_messages_,
                      [&](const auto &message) { return message.first == number; });
        return;
    }
    const bool begins =
        event.kind() == MOORAGE_WIRE_CONNECTED || event.kind() == MOORAGE_WIRE_ACCEPTED;
    if (begins && event.record.bytes == 0) blame("a connection that takes messages of 0 bytes");
    if (begins && (event.record.channel < 0 || event.record.channel >= MOORAGE_WIRE_CHANNELS))
        blame(format("a connection of channel {}", event.record.channel));
    if (states_[number] != state::open) blame("an event of a connection that is not open");
}

void wire_end::check_message(const wire_event &event) {
    check_number(event);
    if (event.record.bytes == 0 || event.record.plugin_data == nullptr)
        return blame("a message without bytes");
    if (reinterpret_cast<uintptr_t>(event.record.plugin_data) % 8 != 0)
        blame("a message that does not begin at a multiple of 8");
    if (event.record.message == 0 || !used_numbers_.insert(event.record.message).second)
        blame(format("a message with number {}, which is 0 or was used", event.record.message));
    lent_messages_.insert(event.record.message);
}

void wire_end::wake() { calls().wake(actor_->plugin); }
void wire_end::release(uint64_t message) {
    const core::policy_call running_call(actor_->owner, core::entry_point::wire_release);
    calls().release(actor_->plugin, message);
    lent_messages_.erase(message);
}
void wire_end::close(uint64_t number, bool at_once) {
    const core::policy_call running_call(actor_->owner, core::entry_point::wire_close);
    calls().close(actor_->plugin, number, at_once ? 1 : 0);
}
void wire_end::pace(uint64_t connection, uint64_t bytes_per_s) {
    const core::policy_call running_call(actor_->owner, core::entry_point::wire_pace);
    calls().pace(actor_->plugin, connection, bytes_per_s);
}
core::result<uint64_t> wire_end::remember(const void *memory, uint64_t bytes) {
    uint64_t number = 0;
    const auto done = control(core::entry_point::wire_remember, [&](moorage_plugin *plugin) {
        return calls().remember(plugin, memory, bytes, &number);
    });
    if (!done) return done.failure();
    return number;
}
void wire_end::forget(uint64_t memory) {
    const core::policy_call running_call(actor_->owner, core::entry_point::wire_forget);
    calls().forget(actor_->plugin, memory);
}

}  // namespace moorage::check

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

core::result<std::unique_ptr<wire_end>> wire_end::make(const subject &of,
                                                       const moorage_wire_limits &limits) {
    std::unique_ptr<wire_end> made(new wire_end);
    auto instance = hosted_actor(*of.policy, of.params, made->place_.environment());
    if (!instance) return instance.failure();
    made->actor_ = std::move(instance).value();
    if (auto active = made->actor_->activate(made->place_.limits); !active) return active.failure();
    const auto opened = made->control(core::entry_point::wire_open, [&](moorage_plugin *plugin) {
        return made->calls().open(plugin, &limits);
    });
    if (!opened) return opened.failure();
    return made;
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
    if (number == 0 || !used_.insert(number).second)
        return error{format("listen gives number {}, which is 0 or was used", number)};
    live_[number] = state::listening;
    return number;
}

core::result<uint64_t> wire_end::connect(const std::vector<std::string> &addresses, int32_t channel,
                                         const char *identity) {
    std::vector<const char *> texts;
    for (const std::string &one : addresses) texts.push_back(one.c_str());
    moorage_wire_target target{
        sizeof(target), channel, texts.data(), static_cast<uint32_t>(texts.size()), 0, identity};
    uint64_t number = 0;
    const auto done = control(core::entry_point::wire_connect, [&](moorage_plugin *plugin) {
        return calls().connect(plugin, &target, &number);
    });
    if (!done) return done.failure();
    if (number == 0 || !used_.insert(number).second)
        return error{format("connect gives number {}, which is 0 or was used", number)};
    live_[number] = state::begun;
    return number;
}

uint32_t wire_end::send(uint64_t to, std::span<const moorage_wire_part> parts, uint64_t user) {
    const auto once = [&] {
        const core::policy_call at_work(actor_->owner, core::entry_point::wire_send);
        return calls().send(actor_->plugin, to, parts.data(), static_cast<uint32_t>(parts.size()),
                            user);
    };
    const uint32_t did = once();
    if (did == MOORAGE_WIRE_REFUSED) {  // again, for its text
        const auto told =
            actor_->control(core::entry_point::wire_send, [&](moorage_plugin *) -> int32_t {
                return once() == MOORAGE_WIRE_REFUSED ? MOORAGE_INVALID_ARGUMENT : MOORAGE_OK;
            });
        refusal_ = told ? "" : told.failure().text;
        if (refusal_.empty() || refusal_.ends_with("no text given"))
            blame("send refuses a message without a text; call set_error");
    }
    if (did > MOORAGE_WIRE_REFUSED) blame(format("send answers {}, which is no answer", did));
    if (did == MOORAGE_WIRE_TAKEN) borrowed_.insert({to, user});
    if (did == MOORAGE_WIRE_FULL) full_.insert(to);
    const auto at = live_.find(to);
    if (did <= MOORAGE_WIRE_FULL && (at == live_.end() || at->second != state::open))
        blame("send takes a message for a connection that is not open");
    return did;
}

std::vector<heard> wire_end::poll(uint64_t wait_ns, uint32_t capacity) {
    std::vector<moorage_wire_event> room(capacity + 2);
    std::memset(static_cast<void *>(room.data()), 0x5a, room.size() * sizeof(room[0]));
    uint32_t count = 0;
    {
        const core::policy_call at_work(actor_->owner, core::entry_point::wire_poll);
        count = calls().poll(actor_->plugin, room.data(), capacity, wait_ns);
    }
    std::vector<heard> all;
    if (count > capacity) {
        blame(format("poll says {} events where {} have room", count, capacity));
        return all;
    }
    if (room[capacity].connection != untouched || room[capacity].user != untouched)
        blame("poll writes beyond the capacity");
    for (uint32_t i = 0; i < count; ++i) {
        const moorage_wire_event &event = room[i];
        if (!event.plugin_identity || !event.plugin_address || !event.plugin_text) {
            blame("a text of an event is null; \"\" where there is none");
            return all;
        }
        all.push_back({event, event.plugin_identity, event.plugin_address, event.plugin_text});
        judge(all.back());
    }
    return all;
}

void wire_end::judge(const heard &one) {
    switch (one.kind()) {
        case MOORAGE_WIRE_MESSAGE:
            return judge_message(one);
        case MOORAGE_WIRE_SENT:
            if (borrowed_.erase({one.of(), one.event.user}) == 0)
                blame(format("SENT for user {} of connection {}, which borrows nothing",
                             one.event.user, one.of()));
            return judge_number(one);
        case MOORAGE_WIRE_WRITABLE:
            if (full_.erase(one.of()) == 0) blame("WRITABLE without FULL before it, or twice");
            return judge_number(one);
        case MOORAGE_WIRE_TURNED_AWAY:
            if (one.event.count == 0) blame("TURNED_AWAY of nobody: count is 0");
            if (one.words.empty()) blame("TURNED_AWAY without a word why");
            if (one.event.reason < MOORAGE_WIRE_BY_HOST || one.event.reason > MOORAGE_WIRE_TOO_SLOW)
                blame(format("reason {} is unknown", one.event.reason));
            return;
        case MOORAGE_WIRE_CONNECTED:
        case MOORAGE_WIRE_ACCEPTED:
        case MOORAGE_WIRE_CLOSED:
            return judge_number(one);
        default:
            blame(format("event of kind {}, which there is not", one.kind()));
    }
}

void wire_end::judge_number(const heard &one) {
    const uint64_t number = one.of();
    const auto at = live_.find(number);
    if (one.kind() == MOORAGE_WIRE_ACCEPTED) {
        if (number == 0 || !used_.insert(number).second)
            return blame(format("ACCEPTED with number {}, which is 0 or was used", number));
        live_[number] = state::open;
        if (!live_.contains(one.event.listener)) blame("ACCEPTED by a listener that is unknown");
    } else if (at == live_.end()) {
        return blame(
            format("event of kind {} for number {}, which is none, or closed", one.kind(), number));
    }
    if (one.kind() == MOORAGE_WIRE_CONNECTED) {
        if (at->second != state::begun) blame("CONNECTED twice, or for what was not begun");
        at->second = state::open;
    }
    if (one.kind() == MOORAGE_WIRE_CLOSED) {
        if (one.event.reason < MOORAGE_WIRE_BY_HOST || one.event.reason > MOORAGE_WIRE_TOO_SLOW)
            blame(format("CLOSED for reason {}, which there is not", one.event.reason));
        if (one.words.empty()) blame("CLOSED without a word why");
        live_.erase(number);
        full_.erase(number);
        std::erase_if(borrowed_, [&](const auto &of) { return of.first == number; });
        return;
    }
    const bool begins = one.kind() == MOORAGE_WIRE_CONNECTED || one.kind() == MOORAGE_WIRE_ACCEPTED;
    if (begins && one.event.bytes == 0) blame("a connection that takes messages of 0 bytes");
    if (begins && (one.event.channel < 0 || one.event.channel >= MOORAGE_WIRE_CHANNELS))
        blame(format("a connection of channel {}", one.event.channel));
    if (live_[number] != state::open) blame("an event of a connection that is not open");
}

void wire_end::judge_message(const heard &one) {
    judge_number(one);
    if (one.event.bytes == 0 || one.event.plugin_data == nullptr)
        return blame("a message without bytes");
    if (reinterpret_cast<uintptr_t>(one.event.plugin_data) % 8 != 0)
        blame("a message that does not begin at a multiple of 8");
    if (one.event.message == 0 || !used_.insert(one.event.message).second)
        blame(format("a message with number {}, which is 0 or was used", one.event.message));
    lent_.insert(one.event.message);
}

void wire_end::wake() { calls().wake(actor_->plugin); }
void wire_end::release(uint64_t message) {
    const core::policy_call at_work(actor_->owner, core::entry_point::wire_release);
    calls().release(actor_->plugin, message);
    lent_.erase(message);
}
void wire_end::close(uint64_t number, bool at_once) {
    const core::policy_call at_work(actor_->owner, core::entry_point::wire_close);
    calls().close(actor_->plugin, number, at_once ? 1 : 0);
}
void wire_end::pace(uint64_t connection, uint64_t bytes_per_s) {
    const core::policy_call at_work(actor_->owner, core::entry_point::wire_pace);
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
    const core::policy_call at_work(actor_->owner, core::entry_point::wire_forget);
    calls().forget(actor_->plugin, memory);
}

}  // namespace moorage::check

// tests_wire_life.cpp - how connections of a wire begin and end, and refusals.
#include <thread>

#include "core/base/text.h"
#include "tools/moorage/check/tests.h"
#include "tools/moorage/check/wire_flow.h"

namespace moorage::check {

using core::format;

namespace {

verdict rules_verdict(const wire_pair &pair) {
    return pair.broken_rule().empty() ? passed() : failed(pair.broken_rule());
}

// Sends one message each way and waits for both.
core::status exchange_messages(wire_pair &pair, const wire_link &link, uint64_t seed) {
    const auto size = [](uint64_t) { return 100; };
    wire_flow forward(*pair.near, link.near, link.far, seed, 1, size);
    wire_flow backward(*pair.far, link.far, link.near, seed + 1, 1, size);
    forward.send(1), backward.send(1);
    const auto done = wait_until(
        "a message each way",
        [&] {
            pair.poll_both([&](wire_end &end, const wire_event &event) {
                forward.handle_event(end, event), backward.handle_event(end, event);
                if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.record.message);
            });
        },
        [&] { return forward.all_arrived() && backward.all_arrived(); });
    for (const wire_flow *flow : {&forward, &backward})
        if (!flow->fault_text().empty()) return core::error{flow->fault_text()};
    return done;
}

// Sends messages from near to far, then calls `finish`. Records the messages before CLOSED at far,
// and whether near got its own CLOSED.
struct close_result {
    uint64_t arrived = 0;
    int32_t near_reason = 0, far_reason = 0;
    std::string error;
};
close_result send_then(wire_pair &pair, const wire_link &link, uint64_t count,
                       const std::function<void()> &finish) {
    wire_flow flow(*pair.near, link.near, link.far, 7, count,
                   [](uint64_t index) { return 1 + index * 131 % 9000; });
    const auto sending = wait_until(
        "sending",
        [&] {
            if (!flow.full()) flow.send(64);
            if (flow.full())
                pair.poll_both([&](wire_end &end, const wire_event &event) {
                    flow.handle_event(end, event);
                    if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.record.message);
                });
        },
        [&] { return flow.all_sent() || !flow.fault_text().empty(); });
    close_result seen;
    finish();
    const auto ended = wait_until(
        "CLOSED on both sides",
        [&] {
            pair.poll_both([&](wire_end &end, const wire_event &event) {
                flow.handle_event(end, event);
                if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.record.message);
                if (event.kind() != MOORAGE_WIRE_CLOSED) return;
                (&end == pair.near.get() ? seen.near_reason : seen.far_reason) =
                    event.record.reason;
            });
        },
        [&] { return seen.near_reason != 0 && seen.far_reason != 0; });
    seen.arrived = flow.arrived();
    for (const auto &done : {sending, ended})
        if (!done && seen.error.empty()) seen.error = done.failure().text;
    if (!flow.fault_text().empty()) seen.error = flow.fault_text();
    return seen;
}

}  // namespace

verdict wire_wake(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect();
    if (!link) return failed(link.failure().text);
    for (int i = 0; i < 20; ++i) {
        // The timeout of the test ends and names a poll that does not return.
        std::thread waiting_thread([&] { pair.near->poll(MOORAGE_NEVER); });
        if (i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        pair.near->wake();
        waiting_thread.join();
        pair.near->wake();  // before the poll
        pair.near->poll(MOORAGE_NEVER);
    }
    // A message also ends the wait.
    std::vector<unsigned char> bytes(10, 1);
    const moorage_wire_part part{bytes.data(), bytes.size(), 0};
    bool came = false;
    std::thread waiting_thread([&] {
        while (!came)
            for (const wire_event &event : pair.near->poll(MOORAGE_NEVER))
                came = came || event.kind() == MOORAGE_WIRE_MESSAGE;
    });
    const uint32_t did = pair.far->send(link->far, std::span(&part, 1), 1);
    pair.far->poll();
    waiting_thread.join();
    return did <= MOORAGE_WIRE_TAKEN ? rules_verdict(pair) : failed("a message is not taken");
}

verdict wire_close(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 500;
    const close_result seen =
        send_then(pair, *link, count, [&] { pair.near->close(link->near, /*at_once=*/false); });
    if (!seen.error.empty()) return failed(seen.error);
    if (seen.arrived != count)
        return failed(
            format("{} of {} messages arrive that were taken before close", seen.arrived, count));
    if (seen.near_reason != MOORAGE_WIRE_BY_HOST || seen.far_reason != MOORAGE_WIRE_BY_PEER)
        return failed(format("reasons {} and {} where {} (by host) and {} (by peer) are due",
                             seen.near_reason, seen.far_reason, int(MOORAGE_WIRE_BY_HOST),
                             int(MOORAGE_WIRE_BY_PEER)));
    const moorage_wire_part part{&count, sizeof(count), 0};
    if (pair.near->send(link->near, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE ||
        pair.far->send(link->far, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE)
        return failed("send on a closed connection does not answer GONE");
    return rules_verdict(pair);
}

verdict wire_close_at_once(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect(), kept_link = pair.connect();
    if (!link || !kept_link) return failed((link ? kept_link : link).failure().text);
    const close_result seen =
        send_then(pair, *link, 500, [&] { pair.near->close(link->near, /*at_once=*/true); });
    if (!seen.error.empty()) return failed(seen.error);
    if (seen.near_reason != MOORAGE_WIRE_BY_HOST)
        return failed(format("reason {} where {} (by host) is due", seen.near_reason,
                             int(MOORAGE_WIRE_BY_HOST)));
    // A closed listener accepts nobody, and keeps the connections that it accepted.
    pair.far->close(pair.listener, true);
    if (const auto closed = pair.await_events(*pair.far, MOORAGE_WIRE_CLOSED); !closed)
        return failed("CLOSED of a listener: " + closed.failure().text);
    if (const auto done = exchange_messages(pair, *kept_link, 1); !done)
        return failed("after its listener was closed: " + done.failure().text);
    return rules_verdict(pair);
}

verdict wire_peer_death(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect();
    if (!link) return failed(link.failure().text);
    wire_flow forward(*pair.near, link->near, link->far, 1, 2000, [](uint64_t) { return 3000; });
    wire_flow backward(*pair.far, link->far, link->near, 2, 2000, [](uint64_t) { return 3000; });
    const auto handle_event = [&](wire_end &end, const wire_event &event) {
        forward.handle_event(end, event), backward.handle_event(end, event);
        if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.record.message);
    };
    const auto begun = wait_until(
        "the first messages",
        [&] { forward.send(20), backward.send(20), pair.poll_both(handle_event); },
        [&] { return forward.arrived() > 50 && backward.arrived() > 50; });
    if (!begun) return failed(begun.failure().text);
    const std::string address = pair.address;
    pair.far->end();
    wire_event closed{};
    const auto ended = wait_until(
        "CLOSED after the peer's end",
        [&] {
            for (const wire_event &event : pair.near->poll(1'000'000)) {
                handle_event(*pair.near, event);
                if (event.kind() == MOORAGE_WIRE_CLOSED) closed = event;
            }
        },
        [&] { return closed.kind() != 0; });
    if (!ended) return failed(ended.failure().text);
    if (!backward.fault_text().empty()) return failed(backward.fault_text());
    if (closed.record.reason != MOORAGE_WIRE_LOST)
        return failed(format("reason {} for a peer that ended without a word, {} (lost) is due",
                             closed.record.reason, int(MOORAGE_WIRE_LOST)));
    const moorage_wire_part part{&closed, 8, 0};
    if (pair.near->send(link->near, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE)
        return failed("send to a dead peer does not answer GONE");
    // The wire opens again under the same address.
    auto again = wire_end::make(input, usual_wire_limits());
    if (!again) return failed(again.failure().text);
    pair.far = std::move(again).value();
    const auto listening = pair.far->listen(address, pair.address);
    if (!listening) return failed("listening again: " + listening.failure().text);
    const auto anew = pair.connect();
    if (!anew) return failed("after the peer came back: " + anew.failure().text);
    const auto done = exchange_messages(pair, *anew, 5);
    return done ? rules_verdict(pair) : failed(done.failure().text);
}

verdict wire_wrong_address(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    for (const std::string &address : {std::string(), std::string(400, 'x')}) {
        std::string bound;
        if (pair.near->connect({address}, MOORAGE_WIRE_CALLS) || pair.near->listen(address, bound))
            return failed(format("an address of {} bytes is taken", address.size()));
    }
    if (pair.near->connect({}, MOORAGE_WIRE_CALLS))
        return failed("a target without address is taken");
    std::string dead;
    const auto gone = pair.far->listen(input.wire_address, dead);
    if (!gone) return failed("a second listener: " + gone.failure().text);
    pair.far->close(*gone, true);
    if (const auto closed = pair.await_events(*pair.far, MOORAGE_WIRE_CLOSED); !closed)
        return failed("CLOSED of a listener: " + closed.failure().text);
    const auto begun = pair.near->connect({dead}, MOORAGE_WIRE_CALLS);
    if (!begun) return failed("connecting where nobody listens: " + begun.failure().text);
    const auto closed = pair.await_events(*pair.near, MOORAGE_WIRE_CLOSED);
    if (!closed) return failed("where nobody listens: " + closed.failure().text);
    if ((*closed)[0].connection() != *begun ||
        (*closed)[0].record.reason != MOORAGE_WIRE_UNREACHABLE)
        return failed(format("reason {} where nobody listens, {} (unreachable) is due",
                             (*closed)[0].record.reason, int(MOORAGE_WIRE_UNREACHABLE)));
    // One of several addresses must answer; that is enough.
    const std::string good = pair.address;
    const auto second_attempt = pair.near->connect({dead, good}, MOORAGE_WIRE_CALLS);
    if (!second_attempt) return failed(second_attempt.failure().text);
    const auto connected = pair.await_events(*pair.near, MOORAGE_WIRE_CONNECTED);
    if (!connected) return failed("of two addresses one answers: " + connected.failure().text);
    return rules_verdict(pair);
}

verdict wire_limits(const test_input &input) {
    moorage_wire_limits small_limits = usual_wire_limits();
    small_limits.connections_max = 2;
    moorage_wire_limits wrong = usual_wire_limits();
    wrong.receive_bytes_max = wrong.message_bytes_max[0] - 1;
    if (wire_end::make(input, wrong))
        return failed("open takes receive_bytes_max below the longest message");
    {
        const auto opened_pair = wire_pair::make(input, small_limits, usual_wire_limits());
        if (!opened_pair) return failed(opened_pair.failure().text);
        for (int i = 0; i < 2; ++i)
            if (const auto link = (*opened_pair)->connect(); !link)
                return failed(link.failure().text);
        if ((*opened_pair)->near->connect({(*opened_pair)->address}, MOORAGE_WIRE_CALLS))
            return failed("a third connection is begun where connections_max is 2");
        if (!(*opened_pair)->broken_rule().empty()) return failed((*opened_pair)->broken_rule());
    }
    const auto opened_pair = wire_pair::make(input, usual_wire_limits(), small_limits);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto first = pair.connect(), second = pair.connect();
    if (!first || !second) return failed((first ? second : first).failure().text);
    const auto third = pair.near->connect({pair.address}, MOORAGE_WIRE_CALLS);
    if (!third) return failed(third.failure().text);
    int32_t turned_away = 0;
    bool closed = false, accepted = false;
    const auto seen = wait_until(
        "CLOSED of a connection too many, and TURNED_AWAY at the other side",
        [&] {
            pair.poll_both([&](wire_end &end, const wire_event &event) {
                if (&end == pair.far.get() && event.kind() == MOORAGE_WIRE_TURNED_AWAY)
                    turned_away = event.record.reason;
                if (event.kind() == MOORAGE_WIRE_ACCEPTED) accepted = true;
                if (event.kind() == MOORAGE_WIRE_CLOSED && event.connection() == *third)
                    closed = true;
            });
        },
        [&] { return (turned_away != 0 && closed) || accepted; });
    if (accepted) return failed("a third connection is accepted where connections_max is 2");
    if (!seen) return failed(seen.failure().text);
    if (turned_away != MOORAGE_WIRE_TOO_MANY)
        return failed(format("turned away for reason {}, {} (too many) is due", turned_away,
                             int(MOORAGE_WIRE_TOO_MANY)));
    for (const auto *link : {&first, &second})
        if (const auto done = exchange_messages(pair, **link, 3); !done)
            return failed("after one was turned away: " + done.failure().text);
    return rules_verdict(pair);
}

verdict wire_refusals(const test_input &input) {
    moorage_wire_limits limits = usual_wire_limits();
    limits.message_bytes_max[MOORAGE_WIRE_CALLS] = 100'000;
    const auto opened_pair = wire_pair::make(input, usual_wire_limits(), limits);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect();
    if (!link) return failed(link.failure().text);
    const auto bytes = message_of(1, 0, 100'001);
    const auto send = [&](std::vector<moorage_wire_part> parts) {
        return pair.near->send(link->near, parts, 1);
    };
    const moorage_wire_part part{bytes.data(), 1, 0};
    if (send({}) != MOORAGE_WIRE_REFUSED || send({{bytes.data(), 0, 0}}) != MOORAGE_WIRE_REFUSED)
        return failed("a message without bytes is not REFUSED");
    if (send(std::vector<moorage_wire_part>(65, part)) != MOORAGE_WIRE_REFUSED)
        return failed("a message of 65 parts is not REFUSED");
    if (send({{bytes.data(), 100'001, 0}}) != MOORAGE_WIRE_REFUSED ||
        send({{bytes.data(), 60'000, 0}, {bytes.data(), 40'001, 0}}) != MOORAGE_WIRE_REFUSED ||
        send({{bytes.data(), 60'000, 0}, {bytes.data(), ~uint64_t{0} - 50'000, 0}}) !=
            MOORAGE_WIRE_REFUSED)
        return failed("a message longer than both sides take is not REFUSED");
    const uint32_t answer = send({{bytes.data(), 100'000, 0}});
    if (answer != MOORAGE_WIRE_DONE && answer != MOORAGE_WIRE_TAKEN)
        return failed("the longest message that both sides take is not taken");
    const auto came = pair.await_events(*pair.far, MOORAGE_WIRE_MESSAGE);
    if (!came) return failed(came.failure().text);
    if ((*came)[0].record.bytes != 100'000) return failed("it does not arrive whole");
    if (pair.near->send(link->near + 1000, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE)
        return failed("send to a number that is none does not answer GONE");
    return rules_verdict(pair);
}

verdict wire_numbers(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    for (uint64_t i = 0; i < 24; ++i) {
        const auto link = pair.connect();
        if (!link) return failed(link.failure().text);
        if (const auto done = exchange_messages(pair, *link, i); !done)
            return failed(done.failure().text);
        wire_end &closing = i % 2 ? *pair.near : *pair.far, &peer = i % 2 ? *pair.far : *pair.near;
        closing.close(i % 2 ? link->near : link->far, false);
        if (const auto closed = pair.await_events(peer, MOORAGE_WIRE_CLOSED); !closed)
            return failed(closed.failure().text);
        // Numbers of no connection, and of one that has ended.
        for (const uint64_t number : {uint64_t{0}, uint64_t{77'777}, ~uint64_t{0}, link->near}) {
            pair.near->release(number);
            if (number != link->near) pair.near->close(number, true);
            if (pair.near->calls().pace) pair.near->pace(number, 1000);
            pair.poll_both([](wire_end &end, const wire_event &event) {
                if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.record.message);
            });
        }
    }
    return rules_verdict(pair);
}

verdict wire_identity(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect();
    if (!link) return failed(link.failure().text);
    const bool secure = (link->connected.record.flags & MOORAGE_WIRE_SECURE) != 0;
    const auto stranger =
        pair.near->connect({pair.address}, MOORAGE_WIRE_CALLS, "nobody.of.this.name");
    if (!secure)
        return stranger ? failed("it connects to an identity that it cannot prove")
                        : rules_verdict(pair);
    if (!stranger) return failed(stranger.failure().text);
    const auto closed = pair.await_events(*pair.near, MOORAGE_WIRE_CLOSED);
    if (!closed) return failed(closed.failure().text);
    if ((*closed)[0].record.reason != MOORAGE_WIRE_STRANGER)
        return failed(format("reason {} for another identity, {} (stranger) is due",
                             (*closed)[0].record.reason, int(MOORAGE_WIRE_STRANGER)));
    const std::string proved = link->connected.identity;
    if (!pair.near->connect({pair.address}, MOORAGE_WIRE_CALLS, proved.c_str()))
        return failed("it does not connect to the identity that it told of");
    const auto connected = pair.await_events(*pair.near, MOORAGE_WIRE_CONNECTED);
    return connected ? rules_verdict(pair) : failed(connected.failure().text);
}

}  // namespace moorage::check

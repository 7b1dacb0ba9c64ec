// tests_wire_life.cpp - how connections of a wire begin and end, and refusals.
#include <thread>

#include "core/base/text.h"
#include "tools/moorage/check/tests.h"
#include "tools/moorage/check/wire_flow.h"

namespace moorage::check {

using core::format;

namespace {

verdict sound(const wire_pair &at) { return at.broken().empty() ? passed() : failed(at.broken()); }

// Sends one message each way and waits for both.
core::status speak(wire_pair &at, const wire_link &link, uint64_t seed) {
    const auto size = [](uint64_t) { return 100; };
    wire_flow out(*at.near, link.near, link.far, seed, 1, size);
    wire_flow back(*at.far, link.far, link.near, seed + 1, 1, size);
    out.send(1), back.send(1);
    const auto done = until(
        "a message each way",
        [&] {
            at.turn([&](wire_end &end, const heard &one) {
                out.hear(end, one), back.hear(end, one);
                if (one.kind() == MOORAGE_WIRE_MESSAGE) end.release(one.event.message);
            });
        },
        [&] { return out.all_arrived() && back.all_arrived(); });
    for (const wire_flow *one : {&out, &back})
        if (!one->wrong().empty()) return core::error{one->wrong()};
    return done;
}

// Sends messages from near to far, then calls `finish`. Records the messages before CLOSED at far,
// and whether near got its own CLOSED.
struct ending {
    uint64_t arrived = 0;
    int32_t near_reason = 0, far_reason = 0;
    std::string wrong;
};
ending send_and(wire_pair &at, const wire_link &link, uint64_t count,
                const std::function<void()> &finish) {
    wire_flow flow(*at.near, link.near, link.far, 7, count,
                   [](uint64_t index) { return 1 + index * 131 % 9000; });
    const auto size_of_all = until(
        "sending",
        [&] {
            if (!flow.full()) flow.send(64);
            if (flow.full())
                at.turn([&](wire_end &end, const heard &one) {
                    flow.hear(end, one);
                    if (one.kind() == MOORAGE_WIRE_MESSAGE) end.release(one.event.message);
                });
        },
        [&] { return flow.all_sent() || !flow.wrong().empty(); });
    ending seen;
    finish();
    const auto ended = until(
        "CLOSED on both sides",
        [&] {
            at.turn([&](wire_end &end, const heard &one) {
                flow.hear(end, one);
                if (one.kind() == MOORAGE_WIRE_MESSAGE) end.release(one.event.message);
                if (one.kind() != MOORAGE_WIRE_CLOSED) return;
                (&end == at.near.get() ? seen.near_reason : seen.far_reason) = one.event.reason;
            });
        },
        [&] { return seen.near_reason != 0 && seen.far_reason != 0; });
    seen.arrived = flow.arrived();
    for (const auto &done : {size_of_all, ended})
        if (!done && seen.wrong.empty()) seen.wrong = done.failure().text;
    if (!flow.wrong().empty()) seen.wrong = flow.wrong();
    return seen;
}

}  // namespace

verdict wire_wake(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet();
    if (!link) return failed(link.failure().text);
    for (int i = 0; i < 20; ++i) {
        // The timeout of the test ends and names a poll that does not return.
        std::thread waits([&] { at.near->poll(MOORAGE_NEVER); });
        if (i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        at.near->wake();
        waits.join();
        at.near->wake();  // before the poll
        at.near->poll(MOORAGE_NEVER);
    }
    // A message also ends the wait.
    std::vector<unsigned char> bytes(10, 1);
    const moorage_wire_part part{bytes.data(), bytes.size(), 0};
    bool came = false;
    std::thread waits([&] {
        while (!came)
            for (const heard &one : at.near->poll(MOORAGE_NEVER))
                came = came || one.kind() == MOORAGE_WIRE_MESSAGE;
    });
    const uint32_t did = at.far->send(link->far, std::span(&part, 1), 1);
    at.far->poll();
    waits.join();
    return did <= MOORAGE_WIRE_TAKEN ? sound(at) : failed("a message is not taken");
}

verdict wire_close(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 500;
    const ending seen =
        send_and(at, *link, count, [&] { at.near->close(link->near, /*at_once=*/false); });
    if (!seen.wrong.empty()) return failed(seen.wrong);
    if (seen.arrived != count)
        return failed(
            format("{} of {} messages arrive that were taken before close", seen.arrived, count));
    if (seen.near_reason != MOORAGE_WIRE_BY_HOST || seen.far_reason != MOORAGE_WIRE_BY_PEER)
        return failed(format("reasons {} and {} where {} (by host) and {} (by peer) are due",
                             seen.near_reason, seen.far_reason, int(MOORAGE_WIRE_BY_HOST),
                             int(MOORAGE_WIRE_BY_PEER)));
    const moorage_wire_part part{&count, sizeof(count), 0};
    if (at.near->send(link->near, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE ||
        at.far->send(link->far, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE)
        return failed("send on a closed connection does not answer GONE");
    return sound(at);
}

verdict wire_close_at_once(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet(), other = at.meet();
    if (!link || !other) return failed((link ? other : link).failure().text);
    const ending seen =
        send_and(at, *link, 500, [&] { at.near->close(link->near, /*at_once=*/true); });
    if (!seen.wrong.empty()) return failed(seen.wrong);
    if (seen.near_reason != MOORAGE_WIRE_BY_HOST)
        return failed(format("reason {} where {} (by host) is due", seen.near_reason,
                             int(MOORAGE_WIRE_BY_HOST)));
    // A closed listener accepts nobody, and keeps the connections that it accepted.
    at.far->close(at.listener, true);
    if (const auto closed = at.await(*at.far, MOORAGE_WIRE_CLOSED); !closed)
        return failed("CLOSED of a listener: " + closed.failure().text);
    if (const auto done = speak(at, *other, 1); !done)
        return failed("after its listener was closed: " + done.failure().text);
    return sound(at);
}

verdict wire_peer_death(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet();
    if (!link) return failed(link.failure().text);
    wire_flow there(*at.near, link->near, link->far, 1, 2000, [](uint64_t) { return 3000; });
    wire_flow back(*at.far, link->far, link->near, 2, 2000, [](uint64_t) { return 3000; });
    const auto take = [&](wire_end &end, const heard &one) {
        there.hear(end, one), back.hear(end, one);
        if (one.kind() == MOORAGE_WIRE_MESSAGE) end.release(one.event.message);
    };
    const auto begun = until(
        "the first messages", [&] { there.send(20), back.send(20), at.turn(take); },
        [&] { return there.arrived() > 50 && back.arrived() > 50; });
    if (!begun) return failed(begun.failure().text);
    const std::string address = at.address;
    at.far->end();
    heard closed{};
    const auto ended = until(
        "CLOSED after the peer's end",
        [&] {
            for (const heard &one : at.near->poll(1'000'000)) {
                take(*at.near, one);
                if (one.kind() == MOORAGE_WIRE_CLOSED) closed = one;
            }
        },
        [&] { return closed.kind() != 0; });
    if (!ended) return failed(ended.failure().text);
    if (!back.wrong().empty()) return failed(back.wrong());
    if (closed.event.reason != MOORAGE_WIRE_LOST)
        return failed(format("reason {} for a peer that ended without a word, {} (lost) is due",
                             closed.event.reason, int(MOORAGE_WIRE_LOST)));
    const moorage_wire_part part{&closed, 8, 0};
    if (at.near->send(link->near, std::span(&part, 1), 1) != MOORAGE_WIRE_GONE)
        return failed("send to a dead peer does not answer GONE");
    // The wire opens again under the same address.
    auto again = wire_end::make(of, usual_wire_limits());
    if (!again) return failed(again.failure().text);
    at.far = std::move(again).value();
    const auto listening = at.far->listen(address, at.address);
    if (!listening) return failed("listening again: " + listening.failure().text);
    const auto anew = at.meet();
    if (!anew) return failed("after the peer came back: " + anew.failure().text);
    const auto done = speak(at, *anew, 5);
    return done ? sound(at) : failed(done.failure().text);
}

verdict wire_wrong_address(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    for (const std::string &address : {std::string(), std::string(400, 'x')}) {
        std::string bound;
        if (at.near->connect({address}, MOORAGE_WIRE_CALLS) || at.near->listen(address, bound))
            return failed(format("an address of {} bytes is taken", address.size()));
    }
    if (at.near->connect({}, MOORAGE_WIRE_CALLS))
        return failed("a target without address is taken");
    std::string dead;
    const auto gone = at.far->listen(of.wire_address, dead);
    if (!gone) return failed("a second listener: " + gone.failure().text);
    at.far->close(*gone, true);
    if (const auto closed = at.await(*at.far, MOORAGE_WIRE_CLOSED); !closed)
        return failed("CLOSED of a listener: " + closed.failure().text);
    const auto begun = at.near->connect({dead}, MOORAGE_WIRE_CALLS);
    if (!begun) return failed("connecting where nobody listens: " + begun.failure().text);
    const auto closed = at.await(*at.near, MOORAGE_WIRE_CLOSED);
    if (!closed) return failed("where nobody listens: " + closed.failure().text);
    if ((*closed)[0].of() != *begun || (*closed)[0].event.reason != MOORAGE_WIRE_UNREACHABLE)
        return failed(format("reason {} where nobody listens, {} (unreachable) is due",
                             (*closed)[0].event.reason, int(MOORAGE_WIRE_UNREACHABLE)));
    // One of several addresses must answer; that is enough.
    const std::string good = at.address;
    const auto both = at.near->connect({dead, good}, MOORAGE_WIRE_CALLS);
    if (!both) return failed(both.failure().text);
    const auto connected = at.await(*at.near, MOORAGE_WIRE_CONNECTED);
    if (!connected) return failed("of two addresses one answers: " + connected.failure().text);
    return sound(at);
}

verdict wire_limits(const subject &of) {
    moorage_wire_limits less = usual_wire_limits();
    less.connections_max = 2;
    moorage_wire_limits wrong = usual_wire_limits();
    wrong.receive_bytes_max = wrong.message_bytes_max[0] - 1;
    if (wire_end::make(of, wrong))
        return failed("open takes receive_bytes_max below the longest message");
    {
        const auto made = wire_pair::make(of, less, usual_wire_limits());
        if (!made) return failed(made.failure().text);
        for (int i = 0; i < 2; ++i)
            if (const auto link = (*made)->meet(); !link) return failed(link.failure().text);
        if ((*made)->near->connect({(*made)->address}, MOORAGE_WIRE_CALLS))
            return failed("a third connection is begun where connections_max is 2");
        if (!(*made)->broken().empty()) return failed((*made)->broken());
    }
    const auto made = wire_pair::make(of, usual_wire_limits(), less);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto first = at.meet(), second = at.meet();
    if (!first || !second) return failed((first ? second : first).failure().text);
    const auto third = at.near->connect({at.address}, MOORAGE_WIRE_CALLS);
    if (!third) return failed(third.failure().text);
    int32_t turned_away = 0;
    bool closed = false, accepted = false;
    const auto seen = until(
        "CLOSED of a connection too many, and TURNED_AWAY at the other side",
        [&] {
            at.turn([&](wire_end &end, const heard &one) {
                if (&end == at.far.get() && one.kind() == MOORAGE_WIRE_TURNED_AWAY)
                    turned_away = one.event.reason;
                if (one.kind() == MOORAGE_WIRE_ACCEPTED) accepted = true;
                if (one.kind() == MOORAGE_WIRE_CLOSED && one.of() == *third) closed = true;
            });
        },
        [&] { return (turned_away != 0 && closed) || accepted; });
    if (accepted) return failed("a third connection is accepted where connections_max is 2");
    if (!seen) return failed(seen.failure().text);
    if (turned_away != MOORAGE_WIRE_TOO_MANY)
        return failed(format("turned away for reason {}, {} (too many) is due", turned_away,
                             int(MOORAGE_WIRE_TOO_MANY)));
    for (const auto *link : {&first, &second})
        if (const auto done = speak(at, **link, 3); !done)
            return failed("after one was turned away: " + done.failure().text);
    return sound(at);
}

verdict wire_refusals(const subject &of) {
    moorage_wire_limits limits = usual_wire_limits();
    limits.message_bytes_max[MOORAGE_WIRE_CALLS] = 100'000;
    const auto made = wire_pair::make(of, usual_wire_limits(), limits);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet();
    if (!link) return failed(link.failure().text);
    const auto bytes = message_of(1, 0, 100'001);
    const auto send = [&](std::vector<moorage_wire_part> parts) {
        return at.near->send(link->near, parts, 1);
    };
    const moorage_wire_part one{bytes.data(), 1, 0};
    if (send({}) != MOORAGE_WIRE_REFUSED || send({{bytes.data(), 0, 0}}) != MOORAGE_WIRE_REFUSED)
        return failed("a message without bytes is not REFUSED");
    if (send(std::vector<moorage_wire_part>(65, one)) != MOORAGE_WIRE_REFUSED)
        return failed("a message of 65 parts is not REFUSED");
    if (send({{bytes.data(), 100'001, 0}}) != MOORAGE_WIRE_REFUSED ||
        send({{bytes.data(), 60'000, 0}, {bytes.data(), 40'001, 0}}) != MOORAGE_WIRE_REFUSED ||
        send({{bytes.data(), 60'000, 0}, {bytes.data(), ~uint64_t{0} - 50'000, 0}}) !=
            MOORAGE_WIRE_REFUSED)
        return failed("a message longer than both sides take is not REFUSED");
    const uint32_t whole = send({{bytes.data(), 100'000, 0}});
    if (whole != MOORAGE_WIRE_DONE && whole != MOORAGE_WIRE_TAKEN)
        return failed("the longest message that both sides take is not taken");
    const auto came = at.await(*at.far, MOORAGE_WIRE_MESSAGE);
    if (!came) return failed(came.failure().text);
    if ((*came)[0].event.bytes != 100'000) return failed("it does not arrive whole");
    if (at.near->send(link->near + 1000, std::span(&one, 1), 1) != MOORAGE_WIRE_GONE)
        return failed("send to a number that is none does not answer GONE");
    return sound(at);
}

verdict wire_numbers(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    for (uint64_t i = 0; i < 24; ++i) {
        const auto link = at.meet();
        if (!link) return failed(link.failure().text);
        if (const auto done = speak(at, *link, i); !done) return failed(done.failure().text);
        wire_end &closing = i % 2 ? *at.near : *at.far, &other = i % 2 ? *at.far : *at.near;
        closing.close(i % 2 ? link->near : link->far, false);
        if (const auto closed = at.await(other, MOORAGE_WIRE_CLOSED); !closed)
            return failed(closed.failure().text);
        // Numbers of no connection, and of one that has ended.
        for (const uint64_t number : {uint64_t{0}, uint64_t{77'777}, ~uint64_t{0}, link->near}) {
            at.near->release(number);
            if (number != link->near) at.near->close(number, true);
            if (at.near->calls().pace) at.near->pace(number, 1000);
            at.turn([](wire_end &end, const heard &one) {
                if (one.kind() == MOORAGE_WIRE_MESSAGE) end.release(one.event.message);
            });
        }
    }
    return sound(at);
}

verdict wire_identity(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet();
    if (!link) return failed(link.failure().text);
    const bool secure = (link->connected.event.flags & MOORAGE_WIRE_SECURE) != 0;
    const auto stranger = at.near->connect({at.address}, MOORAGE_WIRE_CALLS, "nobody.of.this.name");
    if (!secure)
        return stranger ? failed("it connects to an identity that it cannot prove") : sound(at);
    if (!stranger) return failed(stranger.failure().text);
    const auto closed = at.await(*at.near, MOORAGE_WIRE_CLOSED);
    if (!closed) return failed(closed.failure().text);
    if ((*closed)[0].event.reason != MOORAGE_WIRE_STRANGER)
        return failed(format("reason {} for another identity, {} (stranger) is due",
                             (*closed)[0].event.reason, int(MOORAGE_WIRE_STRANGER)));
    const std::string proved = link->connected.identity;
    if (!at.near->connect({at.address}, MOORAGE_WIRE_CALLS, proved.c_str()))
        return failed("it does not connect to the identity that it told of");
    const auto connected = at.await(*at.near, MOORAGE_WIRE_CONNECTED);
    return connected ? sound(at) : failed(connected.failure().text);
}

}  // namespace moorage::check

// tests_wire.cpp - the messages of a wire: order, sizes, memory, backpressure, channels.
#include <ctime>

#include "core/base/text.h"
#include "tools/moorage/check/tests.h"
#include "tools/moorage/check/wire_flow.h"

namespace moorage::check {

using core::format;

namespace {

// Polls until every flow has arrived. Messages are released at once.
core::status run(wire_pair &at, std::vector<wire_flow> &flows, uint32_t parts = 1,
                 double limit_s = 8) {
    const auto done = until(
        "the arrival of every message",
        [&] {
            for (wire_flow &one : flows)
                if (!one.full()) one.send(16, parts);
            at.turn([&](wire_end &end, const heard &event) {
                for (wire_flow &one : flows) one.hear(end, event);
                if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.event.message);
            });
        },
        [&] {
            return std::all_of(flows.begin(), flows.end(), [](const wire_flow &one) {
                return (one.all_arrived() && one.borrowed() == 0) || !one.wrong().empty() ||
                       !one.ended().empty();
            });
        },
        limit_s);
    for (const wire_flow &one : flows) {
        if (!one.wrong().empty()) return core::error{one.wrong()};
        if (!one.ended().empty()) return core::error{"the connection ends: " + one.ended()};
    }
    if (!at.broken().empty()) return core::error{at.broken()};
    return done;
}

verdict judged(const core::status &done) { return done ? passed() : failed(done.failure().text); }

}  // namespace

verdict wire_connects(const subject &of) {
    moorage_wire_limits less = usual_wire_limits();
    less.message_bytes_max[MOORAGE_WIRE_BULK] = 1 << 20;
    const auto made = wire_pair::make(of, usual_wire_limits(), less);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    for (const int32_t channel : {MOORAGE_WIRE_CALLS, MOORAGE_WIRE_BULK}) {
        const auto link = at.meet(channel);
        if (!link) return failed(link.failure().text);
        for (const heard *one : {&link->connected, &link->accepted}) {
            if (one->event.channel != channel)
                return failed(format("channel {} is told as {}", channel, one->event.channel));
            const uint64_t both = channel == MOORAGE_WIRE_BULK ? 1 << 20 : 16 << 20;
            if (one->event.bytes != both)
                return failed(format("messages of {} bytes are told possible, both sides take {}",
                                     one->event.bytes, both));
        }
        if (link->accepted.event.listener != at.listener)
            return failed("ACCEPTED does not name its listener");
        if (link->connected.event.flags != link->accepted.event.flags)
            return failed("the two sides differ about whether the connection is secure");
        if ((link->connected.event.flags & MOORAGE_WIRE_SECURE) != 0 &&
            (link->connected.identity.empty() || link->accepted.identity.empty()))
            return failed("a secure connection whose peer has no identity");
    }
    return at.broken().empty() ? passed() : failed(at.broken());
}

verdict wire_order(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    std::vector<wire_flow> flows;
    for (uint64_t i = 0; i < 3; ++i) {
        const auto link = (*made)->meet(i == 2 ? MOORAGE_WIRE_BULK : MOORAGE_WIRE_CALLS);
        if (!link) return failed(link.failure().text);
        const auto sizes = [seed = of.seed + i](uint64_t index) {
            return 1 + dice(seed * 7919 + index).below(index % 16 == 0 ? 40'000 : 600);
        };
        flows.emplace_back(*(*made)->near, link->near, link->far, 2 * i + 1, 1500, sizes);
        flows.emplace_back(*(*made)->far, link->far, link->near, 2 * i + 2, 1500, sizes);
    }
    return judged(run(**made, flows));
}

verdict wire_sizes(const subject &of) {
    std::vector<uint64_t> sizes{1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000};
    for (const uint64_t near : {4096, 8192, 16384, 32768, 65536, 131072, 1 << 20, 4 << 20})
        for (int off = -25; off <= 25; off += off < -1 || off > 1 ? 8 : 1)
            sizes.push_back(near + static_cast<uint64_t>(off));
    sizes.push_back(16 << 20);
    moorage_wire_limits limits = usual_wire_limits();
    if (of.large) {
        sizes.insert(sizes.end(), {uint64_t{256} << 20, uint64_t{1} << 30});
        limits.message_bytes_max[MOORAGE_WIRE_BULK] = uint64_t{1} << 30;
        limits.receive_bytes_max = (uint64_t{1} << 30) + (64 << 20);
    }
    const auto made = wire_pair::make(of, limits);
    if (!made) return failed(made.failure().text);
    const auto link = (*made)->meet(MOORAGE_WIRE_BULK);
    if (!link) return failed(link.failure().text);
    const auto size = [&](uint64_t index) { return sizes[index]; };
    for (const uint32_t parts : {1u, 7u, 64u}) {
        std::vector<wire_flow> flows;
        flows.emplace_back(*(*made)->near, link->near, link->far, parts, sizes.size(), size);
        if (const auto done = run(**made, flows, parts, of.large ? 300 : 8); !done)
            return failed(format("in {} parts: {}", parts, done.failure().text));
    }
    return passed(format("1 to {} bytes, in 1, 7 and 64 parts", sizes.back()));
}

verdict wire_in_flight(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    const auto link = (*made)->meet();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 10'000;
    const auto size = [](uint64_t index) { return 16 + index % 64; };
    std::vector<wire_flow> flows;
    flows.emplace_back(*(*made)->near, link->near, link->far, 1, count, size);
    flows.emplace_back(*(*made)->far, link->far, link->near, 2, count, size);
    // Takes all messages before it looks at the first.
    for (wire_flow &one : flows) {
        one.send(count);
        if (!one.all_sent())
            return failed(
                format("{} messages of at most 79 bytes are taken, {} were to be in "
                       "flight; the bounds allow 20,000 and 4 MiB{}",
                       one.sent(), count, one.wrong().empty() ? "" : "; " + one.wrong()));
    }
    return judged(run(**made, flows));
}

verdict wire_backpressure(const subject &of) {
    moorage_wire_limits limits = usual_wire_limits();
    limits.message_bytes_max[0] = limits.message_bytes_max[1] = 64 << 10;
    limits.queue_bytes_max = limits.receive_bytes_max = 1 << 20;
    const auto made = wire_pair::make(of, limits);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet(MOORAGE_WIRE_BULK);
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 4000, bytes = 16 << 10, system_bytes = 32 << 20;
    wire_flow flow(*at.near, link->near, link->far, 1, count, [](uint64_t) { return bytes; });
    std::deque<uint64_t> lent;
    const auto turn = [&] {
        if (!flow.full()) flow.send(64);
        at.turn([&](wire_end &end, const heard &one) {
            flow.hear(end, one);
            if (one.kind() == MOORAGE_WIRE_MESSAGE) lent.push_back(one.event.message);
        });
    };
    // Nothing is released, so the flow must stop, and held memory must stay within its bounds.
    for (int quiet = 0; quiet < 400 && !flow.all_sent();) {
        const uint64_t before = flow.sent() + flow.arrived();
        turn();
        quiet = flow.sent() + flow.arrived() == before ? quiet + 1 : 0;
        if (!flow.wrong().empty()) return failed(flow.wrong());
    }
    if (flow.taken_bytes() > limits.queue_bytes_max + limits.receive_bytes_max + system_bytes)
        return failed(
            format("{} bytes were taken while nothing was released; the bounds say {}, "
                   "and the system may hold some",
                   flow.taken_bytes(), limits.queue_bytes_max + limits.receive_bytes_max));
    if (lent.size() * bytes > limits.receive_bytes_max + (256 << 10))
        return failed(format("{} bytes are lent, receive_bytes_max is {}", lent.size() * bytes,
                             limits.receive_bytes_max));
    if (lent.size() * bytes < limits.receive_bytes_max / 2)
        return failed(format("only {} bytes are lent, receive_bytes_max is {}", lent.size() * bytes,
                             limits.receive_bytes_max));
    const auto done = until(
        "the arrival of every message, once they are released (was WRITABLE told?)",
        [&] {
            for (int i = 0; i < 8 && !lent.empty(); ++i)
                at.far->release(lent.front()), lent.pop_front();
            turn();
        },
        [&] { return flow.all_arrived() || !flow.wrong().empty(); }, 8);
    if (!flow.wrong().empty()) return failed(flow.wrong());
    if (!done) return failed(done.failure().text);
    return at.broken().empty() ? passed() : failed(at.broken());
}

verdict wire_memory_stays(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto link = at.meet();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 300;
    const auto size = [](uint64_t index) { return 1 + index * 97 % 30'000; };
    std::vector<wire_flow> flows;
    flows.emplace_back(*at.near, link->near, link->far, 1, count, size);
    std::vector<heard> lent;
    const auto arrived = until(
        "the arrival of every message",
        [&] {
            if (!flows[0].full()) flows[0].send(16);
            at.turn([&](wire_end &end, const heard &one) {
                flows[0].hear(end, one);
                if (one.kind() == MOORAGE_WIRE_MESSAGE) lent.push_back(one);
            });
        },
        [&] { return flows[0].all_arrived(); });
    if (!arrived) return failed(arrived.failure().text);
    dice draw(of.seed);
    // Releases half in any order, ends the connection, then releases the rest.
    const auto check_one = [&](size_t at_index) {
        const heard &one = lent[at_index];
        const uint64_t index = static_cast<uint64_t>(at_index);
        const auto wanted = message_of(1, index, size(index));
        return std::equal(wanted.begin(), wanted.end(), one.data().begin(), one.data().end());
    };
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    for (size_t i = count; i-- > 1;) std::swap(order[i], order[draw.below(uint32_t(i) + 1)]);
    for (size_t i = 0; i < count; ++i) {
        if (i == count / 2) {
            at.near->close(link->near, false);
            if (const auto closed = at.await(*at.far, MOORAGE_WIRE_CLOSED); !closed)
                return failed(closed.failure().text);
        }
        if (!check_one(order[i]))
            return failed(format("message {} is changed before it is released{}", order[i],
                                 i >= count / 2 ? ", after its connection ended" : ""));
        at.far->release(lent[order[i]].event.message);
    }
    return at.broken().empty() ? passed() : failed(at.broken());
}

verdict wire_channels(const subject &of) {
    moorage_wire_limits limits = usual_wire_limits();
    limits.receive_bytes_max = 16 << 20, limits.queue_bytes_max = 1 << 20;
    const auto made = wire_pair::make(of, limits);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    const auto bulk = at.meet(MOORAGE_WIRE_BULK), calls = at.meet(MOORAGE_WIRE_CALLS);
    if (!bulk || !calls) return failed((bulk ? calls : bulk).failure().text);
    wire_flow heavy(*at.near, bulk->near, bulk->far, 1, 100'000,
                    [](uint64_t) { return 256 << 10; });
    // Sends bulk messages that nobody releases, until the wire is full.
    for (int quiet = 0; quiet < 200;) {
        const uint64_t before = heavy.sent() + heavy.arrived();
        if (!heavy.full()) heavy.send(64);
        at.turn([&](wire_end &end, const heard &one) { heavy.hear(end, one); });
        quiet = heavy.sent() + heavy.arrived() == before ? quiet + 1 : 0;
        if (heavy.sent() > 2000) return failed("bulk is never full; see wire-backpressure");
    }
    std::vector<wire_flow> flows;
    const auto size = [](uint64_t index) { return 8 + index % 5000; };
    flows.emplace_back(*at.near, calls->near, calls->far, 2, 500, size);
    flows.emplace_back(*at.far, calls->far, calls->near, 3, 500, size);
    const auto done = run(at, flows);
    return done ? passed() : failed("calls wait behind bulk: " + done.failure().text);
}

verdict wire_registered(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    wire_pair &at = **made;
    if (!at.near->calls().remember) return skipped("it gains nothing by remembering memory");
    const auto link = at.meet(MOORAGE_WIRE_BULK);
    if (!link) return failed(link.failure().text);
    std::vector<unsigned char> memory = message_of(1, 0, 1 << 20);
    const auto number = at.near->remember(memory.data(), memory.size());
    if (!number) return failed(number.failure().text);
    for (uint64_t i = 0; i < 16; ++i) {
        const moorage_wire_part part{memory.data() + i * 4096, 50'000, *number};
        if (at.near->send(link->near, std::span(&part, 1), i) > MOORAGE_WIRE_TAKEN)
            return failed("a message out of remembered memory is not taken");
    }
    const auto came = at.await(*at.far, MOORAGE_WIRE_MESSAGE, 16);
    if (!came) return failed(came.failure().text);
    for (uint64_t i = 0; i < 16; ++i) {
        const auto got = (*came)[i].data();
        if (got.size() != 50'000 || !std::equal(got.begin(), got.end(), &memory[i * 4096]))
            return failed("a message out of remembered memory arrives otherwise");
    }
    at.near->forget(*number);
    return at.broken().empty() ? passed() : failed(at.broken());
}

verdict wire_idle(const subject &of) {
    const auto made = wire_pair::make(of);
    if (!made) return failed(made.failure().text);
    const auto link = (*made)->meet();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t wait_ns = 300'000'000;
    const std::clock_t before = std::clock();
    (*made)->near->poll(wait_ns);
    const double share = double(std::clock() - before) / CLOCKS_PER_SEC / (wait_ns / 1e9);
    if (share < 0.2) return passed();
    return warned(format("a poll that waits takes {:.0f} % of a processor", share * 100));
}

}  // namespace moorage::check

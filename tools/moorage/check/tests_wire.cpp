// tests_wire.cpp - the messages of a wire: order, sizes, memory, backpressure, channels.
#include <ctime>

#include "core/base/text.h"
#include "tools/moorage/check/tests.h"
#include "tools/moorage/check/wire_flow.h"

namespace moorage::check {

using core::format;

namespace {

// Polls until every flow has arrived. Messages are released at once.
core::status run_flows(wire_pair &pair, std::vector<wire_flow> &flows, uint32_t parts = 1,
                       double limit_s = 8) {
    const auto done = wait_until(
        "the arrival of every message",
        [&] {
            for (wire_flow &flow : flows)
                if (!flow.full()) flow.send(16, parts);
            pair.poll_both([&](wire_end &end, const wire_event &event) {
                for (wire_flow &flow : flows) flow.handle_event(end, event);
                if (event.kind() == MOORAGE_WIRE_MESSAGE) end.release(event.record.message);
            });
        },
        [&] {
            return std::all_of(flows.begin(), flows.end(), [](const wire_flow &flow) {
                return (flow.all_arrived() && flow.borrowed() == 0) || !flow.fault_text().empty() ||
                       !flow.close_text().empty();
            });
        },
        limit_s);
    for (const wire_flow &flow : flows) {
        if (!flow.fault_text().empty()) return core::error{flow.fault_text()};
        if (!flow.close_text().empty())
            return core::error{"the connection ends: " + flow.close_text()};
    }
    if (!pair.broken_rule().empty()) return core::error{pair.broken_rule()};
    return done;
}

verdict to_verdict(const core::status &done) {
    return done ? passed() : failed(done.failure().text);
}

}  // namespace

verdict wire_connects(const test_input &input) {
    moorage_wire_limits small_limits = usual_wire_limits();
    small_limits.message_bytes_max[MOORAGE_WIRE_BULK] = 1 << 20;
    const auto opened_pair = wire_pair::make(input, usual_wire_limits(), small_limits);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    for (const int32_t channel : {MOORAGE_WIRE_CALLS, MOORAGE_WIRE_BULK}) {
        const auto link = pair.connect(channel);
        if (!link) return failed(link.failure().text);
        for (const wire_event *event : {&link->connected, &link->accepted}) {
            if (event->record.channel != channel)
                return failed(format("channel {} is told as {}", channel, event->record.channel));
            const uint64_t limit_bytes = channel == MOORAGE_WIRE_BULK ? 1 << 20 : 16 << 20;
            if (event->record.bytes != limit_bytes)
                return failed(format("messages of {} bytes are told possible, both sides take {}",
                                     event->record.bytes, limit_bytes));
        }
        if (link->accepted.record.listener != pair.listener)
            return failed("ACCEPTED does not name its listener");
        if (link->connected.record.flags != link->accepted.record.flags)
            return failed("the two sides differ about whether the connection is secure");
        if ((link->connected.record.flags & MOORAGE_WIRE_SECURE) != 0 &&
            (link->connected.identity.empty() || link->accepted.identity.empty()))
            return failed("a secure connection whose peer has no identity");
    }
    return pair.broken_rule().empty() ? passed() : failed(pair.broken_rule());
}

verdict wire_order(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    std::vector<wire_flow> flows;
    for (uint64_t i = 0; i < 3; ++i) {
        const auto link = (*opened_pair)->connect(i == 2 ? MOORAGE_WIRE_BULK : MOORAGE_WIRE_CALLS);
        if (!link) return failed(link.failure().text);
        const auto sizes = [seed = input.seed + i](uint64_t index) {
            return 1 + dice(seed * 7919 + index).below(index % 16 == 0 ? 40'000 : 600);
        };
        flows.emplace_back(*(*opened_pair)->near, link->near, link->far, 2 * i + 1, 1500, sizes);
        flows.emplace_back(*(*opened_pair)->far, link->far, link->near, 2 * i + 2, 1500, sizes);
    }
    return to_verdict(run_flows(**opened_pair, flows));
}

verdict wire_sizes(const test_input &input) {
    std::vector<uint64_t> sizes{1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000};
    for (const uint64_t size : {4096, 8192, 16384, 32768, 65536, 131072, 1 << 20, 4 << 20})
        for (int difference = -25; difference <= 25;
             difference += difference < -1 || difference > 1 ? 8 : 1)
            sizes.push_back(size + static_cast<uint64_t>(difference));
    sizes.push_back(16 << 20);
    moorage_wire_limits limits = usual_wire_limits();
    if (input.large) {
        sizes.insert(sizes.end(), {uint64_t{256} << 20, uint64_t{1} << 30});
        limits.message_bytes_max[MOORAGE_WIRE_BULK] = uint64_t{1} << 30;
        limits.receive_bytes_max = (uint64_t{1} << 30) + (64 << 20);
    }
    const auto opened_pair = wire_pair::make(input, limits);
    if (!opened_pair) return failed(opened_pair.failure().text);
    const auto link = (*opened_pair)->connect(MOORAGE_WIRE_BULK);
    if (!link) return failed(link.failure().text);
    const auto size = [&](uint64_t index) { return sizes[index]; };
    for (const uint32_t parts : {1u, 7u, 64u}) {
        std::vector<wire_flow> flows;
        flows.emplace_back(*(*opened_pair)->near, link->near, link->far, parts, sizes.size(), size);
        if (const auto done = run_flows(**opened_pair, flows, parts, input.large ? 300 : 8); !done)
            return failed(format("in {} parts: {}", parts, done.failure().text));
    }
    return passed(format("1 to {} bytes, in 1, 7 and 64 parts", sizes.back()));
}

verdict wire_in_flight(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    const auto link = (*opened_pair)->connect();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 10'000;
    const auto size = [](uint64_t index) { return 16 + index % 64; };
    std::vector<wire_flow> flows;
    flows.emplace_back(*(*opened_pair)->near, link->near, link->far, 1, count, size);
    flows.emplace_back(*(*opened_pair)->far, link->far, link->near, 2, count, size);
    // Takes all messages before it looks at the first.
    for (wire_flow &flow : flows) {
        flow.send(count);
        if (!flow.all_sent())
            return failed(format(
                "{} messages of at most 79 bytes are taken, {} were to be in "
                "flight; the bounds allow 20,000 and 4 MiB{}",
                flow.sent(), count, flow.fault_text().empty() ? "" : "; " + flow.fault_text()));
    }
    return to_verdict(run_flows(**opened_pair, flows));
}

verdict wire_backpressure(const test_input &input) {
    moorage_wire_limits limits = usual_wire_limits();
    limits.message_bytes_max[0] = limits.message_bytes_max[1] = 64 << 10;
    limits.queue_bytes_max = limits.receive_bytes_max = 1 << 20;
    const auto opened_pair = wire_pair::make(input, limits);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect(MOORAGE_WIRE_BULK);
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 4000, bytes = 16 << 10, system_bytes = 32 << 20;
    wire_flow flow(*pair.near, link->near, link->far, 1, count, [](uint64_t) { return bytes; });
    std::deque<uint64_t> lent;
    const auto turn = [&] {
        if (!flow.full()) flow.send(64);
        pair.poll_both([&](wire_end &end, const wire_event &event) {
            flow.handle_event(end, event);
            if (event.kind() == MOORAGE_WIRE_MESSAGE) lent.push_back(event.record.message);
        });
    };
    // Nothing is released, so the flow must stop, and held memory must stay within its bounds.
    for (int quiet = 0; quiet < 400 && !flow.all_sent();) {
        const uint64_t moved_before = flow.sent() + flow.arrived();
        turn();
        quiet = flow.sent() + flow.arrived() == moved_before ? quiet + 1 : 0;
        if (!flow.fault_text().empty()) return failed(flow.fault_text());
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
    const auto done = wait_until(
        "the arrival of every message, once they are released (was WRITABLE told?)",
        [&] {
            for (int i = 0; i < 8 && !lent.empty(); ++i)
                pair.far->release(lent.front()), lent.pop_front();
            turn();
        },
        [&] { return flow.all_arrived() || !flow.fault_text().empty(); }, 8);
    if (!flow.fault_text().empty()) return failed(flow.fault_text());
    if (!done) return failed(done.failure().text);
    return pair.broken_rule().empty() ? passed() : failed(pair.broken_rule());
}

verdict wire_memory_stays(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto link = pair.connect();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t count = 300;
    const auto size = [](uint64_t index) { return 1 + index * 97 % 30'000; };
    std::vector<wire_flow> flows;
    flows.emplace_back(*pair.near, link->near, link->far, 1, count, size);
    std::vector<wire_event> lent;
    const auto arrived = wait_until(
        "the arrival of every message",
        [&] {
            if (!flows[0].full()) flows[0].send(16);
            pair.poll_both([&](wire_end &end, const wire_event &event) {
                flows[0].handle_event(end, event);
                if (event.kind() == MOORAGE_WIRE_MESSAGE) lent.push_back(event);
            });
        },
        [&] { return flows[0].all_arrived(); });
    if (!arrived) return failed(arrived.failure().text);
    dice draw(input.seed);
    // Releases half in any order, ends the connection, then releases the rest.
    const auto is_unchanged = [&](size_t at_index) {
        const wire_event &event = lent[at_index];
        const uint64_t index = static_cast<uint64_t>(at_index);
        const auto expected = message_of(1, index, size(index));
        return std::equal(expected.begin(), expected.end(), event.data().begin(),
                          event.data().end());
    };
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    for (size_t i = count; i-- > 1;) std::swap(order[i], order[draw.below(uint32_t(i) + 1)]);
    for (size_t i = 0; i < count; ++i) {
        if (i == count / 2) {
            pair.near->close(link->near, false);
            if (const auto closed = pair.await_events(*pair.far, MOORAGE_WIRE_CLOSED); !closed)
                return failed(closed.failure().text);
        }
        if (!is_unchanged(order[i]))
            return failed(format("message {} is changed before it is released{}", order[i],
                                 i >= count / 2 ? ", after its connection ended" : ""));
        pair.far->release(lent[order[i]].record.message);
    }
    return pair.broken_rule().empty() ? passed() : failed(pair.broken_rule());
}

verdict wire_channels(const test_input &input) {
    moorage_wire_limits limits = usual_wire_limits();
    limits.receive_bytes_max = 16 << 20, limits.queue_bytes_max = 1 << 20;
    const auto opened_pair = wire_pair::make(input, limits);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    const auto bulk = pair.connect(MOORAGE_WIRE_BULK), calls = pair.connect(MOORAGE_WIRE_CALLS);
    if (!bulk || !calls) return failed((bulk ? calls : bulk).failure().text);
    wire_flow heavy(*pair.near, bulk->near, bulk->far, 1, 100'000,
                    [](uint64_t) { return 256 << 10; });
    // Sends bulk messages that nobody releases, until the wire is full.
    for (int quiet = 0; quiet < 200;) {
        const uint64_t moved_before = heavy.sent() + heavy.arrived();
        if (!heavy.full()) heavy.send(64);
        pair.poll_both(
            [&](wire_end &end, const wire_event &event) { heavy.handle_event(end, event); });
        quiet = heavy.sent() + heavy.arrived() == moved_before ? quiet + 1 : 0;
        if (heavy.sent() > 2000) return failed("bulk is never full; see wire-backpressure");
    }
    std::vector<wire_flow> flows;
    const auto size = [](uint64_t index) { return 8 + index % 5000; };
    flows.emplace_back(*pair.near, calls->near, calls->far, 2, 500, size);
    flows.emplace_back(*pair.far, calls->far, calls->near, 3, 500, size);
    const auto done = run_flows(pair, flows);
    return done ? passed() : failed("calls wait behind bulk: " + done.failure().text);
}

verdict wire_registered(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    wire_pair &pair = **opened_pair;
    if (!pair.near->calls().remember) return skipped("it gains nothing by remembering memory");
    const auto link = pair.connect(MOORAGE_WIRE_BULK);
    if (!link) return failed(link.failure().text);
    std::vector<unsigned char> memory = message_of(1, 0, 1 << 20);
    const auto number = pair.near->remember(memory.data(), memory.size());
    if (!number) return failed(number.failure().text);
    for (uint64_t i = 0; i < 16; ++i) {
        const moorage_wire_part part{memory.data() + i * 4096, 50'000, *number};
        if (pair.near->send(link->near, std::span(&part, 1), i) > MOORAGE_WIRE_TAKEN)
            return failed("a message out of remembered memory is not taken");
    }
    const auto came = pair.await_events(*pair.far, MOORAGE_WIRE_MESSAGE, 16);
    if (!came) return failed(came.failure().text);
    for (uint64_t i = 0; i < 16; ++i) {
        const auto got = (*came)[i].data();
        if (got.size() != 50'000 || !std::equal(got.begin(), got.end(), &memory[i * 4096]))
            return failed("a message out of remembered memory arrives otherwise");
    }
    pair.near->forget(*number);
    return pair.broken_rule().empty() ? passed() : failed(pair.broken_rule());
}

verdict wire_idle(const test_input &input) {
    const auto opened_pair = wire_pair::make(input);
    if (!opened_pair) return failed(opened_pair.failure().text);
    const auto link = (*opened_pair)->connect();
    if (!link) return failed(link.failure().text);
    constexpr uint64_t wait_ns = 300'000'000;
    const std::clock_t clock_before = std::clock();
    (*opened_pair)->near->poll(wait_ns);
    const double share = double(std::clock() - clock_before) / CLOCKS_PER_SEC / (wait_ns / 1e9);
    if (share < 0.2) return passed();
    return warned(format("a poll that waits takes {:.0f} % of a processor", share * 100));
}

}  // namespace moorage::check

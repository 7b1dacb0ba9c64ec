// links_test.cpp - goal: a caller that does not take its answers costs a node a bounded amount of
// memory, and costs others nothing. When it takes them, nothing was lost. Method: links over a wire
// whose room the test opens and shuts. Every question is answered with exactly 1 MiB.
#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tools/node/links.h"

namespace links_test {

namespace {

namespace core = moorage::core;
using namespace moorage::core;

constexpr uint64_t answer_bytes = 1 << 20;

// A wire with any number of connections, whose other ends are the test.
class narrow_wire final : public wire {
public:
    bool open = true;            // whether sends are taken
    std::vector<uint64_t> sent;  // ids of the answers, as they went out
    std::set<uint64_t> lent;     // messages that were not released

    moorage_wire_event &happens(int32_t kind, uint64_t connection) {
        moorage_wire_event &event = events_.emplace_back();
        event.kind = kind;
        event.connection = connection;
        return event;
    }
    void say(uint64_t connection, message_bytes &&written, const frame_header &head) {
        end_frame(written, head);
        messages_.push_back(std::make_unique<message_bytes>(std::move(written)));
        moorage_wire_event &event = happens(MOORAGE_WIRE_MESSAGE, connection);
        event.message = messages_.size();
        event.plugin_data = messages_.back()->data();
        event.bytes = messages_.back()->size();
        lent.insert(event.message);
    }
    bool quiet() const { return events_.empty(); }

    result<std::string> listen(const std::string &address) override { return address; }
    uint64_t dialed = 0;  // the latest connection that was begun
    result<uint64_t> connect(int32_t, std::span<const std::string>) override {
        return dialed = 1'000'000 + connects_++;
    }
    uint32_t send(uint64_t, std::span<const moorage_wire_part> parts, uint64_t) override {
        if (!open) return MOORAGE_WIRE_FULL;
        frame message;
        const std::span bytes(static_cast<const std::byte *>(parts[0].host_data), parts[0].bytes);
        REQUIRE(read_frame(bytes, message).reason == refusal_reason::none);
        if (message.header.id != 0) sent.push_back(message.header.id);
        return MOORAGE_WIRE_DONE;
    }
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t) override {
        uint32_t count = 0;
        for (; count < events.size() && !events_.empty(); events_.pop_front())
            events[count++] = events_.front();
        return count;
    }
    void wake() override {}
    void release(uint64_t message) override { CHECK(lent.erase(message) == 1); }
    void close(uint64_t, bool) override {}

private:
    uint64_t connects_ = 0;
    std::deque<moorage_wire_event> events_;
    std::vector<std::unique_ptr<message_bytes>> messages_;
};

// A node that answers everything at once.
class answering final : public link_events {
public:
    links *node_links = nullptr;
    std::map<uint64_t, std::vector<uint64_t>> asked;  // ids by connection
    std::vector<uint64_t> lost;

    void ready(core::link &) override {}
    bool arrived(core::link &sender, const frame &message, uint64_t) override {
        asked[sender.connection].push_back(message.header.id);
        message_bytes written = node_links->take_memory();
        written.resize(answer_bytes);
        CHECK(
            node_links->send(sender, std::move(written), message_kind::weights, message.header.id));
        return false;
    }
    void gone(core::link &peer) override { lost.push_back(peer.connection); }
};

struct bench {
    node_plan plan;
    node_identity identity{0, 7, "test"};
    narrow_wire wire;
    answering node;
    links node_links;

    bench() : node_links(wire, prepared(plan), identity, node) { node.node_links = &node_links; }
    static node_plan &prepared(node_plan &changed_plan) {
        changed_plan.servers.push_back({"server0", {}});
        changed_plan.sizes = {1, 4, 8, 64};
        return changed_plan;
    }
    void settle() {
        while (!wire.quiet()) node_links.turn(0);
    }
    // `sender`: the server that it says it is.
    void caller(uint64_t connection, uint32_t sender = no_server) {
        wire.happens(MOORAGE_WIRE_ACCEPTED, connection).channel = MOORAGE_WIRE_CALLS;
        message_bytes written;
        begin_frame(written);
        greeting says;
        says.sizes = plan.sizes;
        write(written, says);
        frame_header hello = head(message_kind::hello, 0);
        hello.sender = sender;
        wire.say(connection, std::move(written), hello);
        settle();
    }
    bool is_ready(uint64_t connection) {
        const core::link *const peer = node_links.find(connection);
        return peer && peer->state == core::link::state_kind::ready;
    }
    void ask(uint64_t connection, uint64_t first, uint64_t count) {
        const int32_t prompt = 1;
        for (uint64_t id = first; id < first + count; ++id) {
            message_bytes written;
            begin_frame(written);
            write(written, ask_view{1, {&prompt, 1}});
            wire.say(connection, std::move(written), head(message_kind::ask, id));
        }
        settle();
    }
    frame_header head(message_kind kind, uint64_t id) const {
        return {.kind = kind, .incarnation = 9, .epoch = plan.epoch, .id = id};
    }
};

std::vector<uint64_t> numbers(uint64_t first, uint64_t count) {
    std::vector<uint64_t> list(count);
    std::iota(list.begin(), list.end(), first);
    return list;
}

}  // namespace

TEST_CASE("a caller that takes no answers is read no further while 16 MiB of them wait") {
    bench fixture;
    fixture.caller(1);
    fixture.wire.open = false;
    fixture.ask(1, 1, 100);
    // Sixteen answers are 16 MiB, which is not more than that; the seventeenth is.
    CHECK(fixture.node.asked[1] == numbers(1, 17));
    CHECK(fixture.wire.lent.size() == 83);
    CHECK(fixture.wire.sent.empty());

    SUBCASE("all are answered, in their order, once it takes them") {
        fixture.wire.open = true;
        fixture.wire.happens(MOORAGE_WIRE_WRITABLE, 1);
        fixture.settle();
        CHECK(fixture.node.asked[1] == numbers(1, 100));
        CHECK(fixture.wire.sent == numbers(1, 100));
        CHECK(fixture.wire.lent.empty());
        CHECK(fixture.node_links.idle());
    }
    SUBCASE("what it says meanwhile waits behind that") {
        fixture.ask(1, 101, 5);
        CHECK(fixture.node.asked[1] == numbers(1, 17));
        fixture.wire.open = true;
        fixture.wire.happens(MOORAGE_WIRE_WRITABLE, 1);
        fixture.settle();
        CHECK(fixture.wire.sent == numbers(1, 105));
    }
    SUBCASE("others are read on") {
        fixture.wire.open = true;
        fixture.caller(2);
        fixture.ask(2, 1001, 30);
        CHECK(fixture.node.asked[2] == numbers(1001, 30));
        CHECK(fixture.wire.sent == numbers(1001, 30));
        CHECK(fixture.node.asked[1] == numbers(1, 17));
    }
    SUBCASE("when it goes nothing of it is kept") {
        fixture.wire.happens(MOORAGE_WIRE_CLOSED, 1);
        fixture.settle();
        CHECK(fixture.wire.lent.empty());
        CHECK(fixture.node.lost == std::vector<uint64_t>{1});
        CHECK(fixture.node_links.count_open() == 0);
        CHECK(fixture.node_links.idle());
    }
}

TEST_CASE("guests fill their own places, servers of the plan have theirs") {
    bench fixture;
    fixture.plan.servers.push_back({"server1", {}});
    const uint64_t guests = links::guest_places;
    for (uint64_t connection = 1; connection <= guests + 3; ++connection)
        fixture.caller(connection);
    CHECK(fixture.is_ready(guests));
    CHECK_FALSE(fixture.is_ready(guests + 1));
    CHECK(fixture.node_links.figures().refused[static_cast<size_t>(refusal_reason::busy)] == 3);
    // A server of the plan has a limited number of places, too.
    const uint64_t server = 10'000;
    for (uint64_t i = 0; i <= links::server_places; ++i) fixture.caller(server + i, 1);
    CHECK(fixture.is_ready(server + links::server_places - 1));
    CHECK_FALSE(fixture.is_ready(server + links::server_places));
    // A guest that goes leaves its place to the next.
    fixture.wire.happens(MOORAGE_WIRE_CLOSED, 1);
    fixture.settle();
    fixture.caller(20'000);
    CHECK(fixture.is_ready(20'000));
    CHECK(links::connections_max(2) >= guests + links::greeting_places + 2 * links::server_places);
}

TEST_CASE("of those that have connected and not greeted the oldest gives way") {
    bench fixture;
    fixture.caller(1);
    const uint64_t places = links::greeting_places;
    for (uint64_t connection = 2; connection < 2 + places + 3; ++connection)
        fixture.wire.happens(MOORAGE_WIRE_ACCEPTED, connection).channel = MOORAGE_WIRE_CALLS;
    fixture.settle();
    for (const uint64_t gone : {2, 3, 4})
        CHECK(fixture.node_links.find(gone)->state == core::link::state_kind::closing);
    CHECK(fixture.node_links.find(5)->state == core::link::state_kind::greeting);
    CHECK(fixture.is_ready(1));
}

TEST_CASE("what keeps a connection from being made is told from what may soon be over") {
    bench fixture;
    fixture.plan.servers.push_back({"server1", {"loop:1"}});
    narrow_wire wire;
    answering node;
    links caller(wire, fixture.plan, fixture.identity, node);
    const auto ends = [&](int32_t reason, const char *text) {
        moorage_wire_event &event = wire.happens(MOORAGE_WIRE_CLOSED, wire.dialed);
        event.reason = reason;
        event.plugin_text = text;
        const uint64_t last_dialed = wire.dialed;
        while (wire.dialed == last_dialed) caller.turn(0);
    };
    caller.dial();
    for (const int32_t reason : {MOORAGE_WIRE_LOST, MOORAGE_WIRE_TOO_MANY, MOORAGE_WIRE_TOO_SLOW}) {
        ends(reason, "no place");
        CHECK(caller.trouble(1) == "no place");
        CHECK(caller.is_trouble_temporary(1));
    }
    ends(MOORAGE_WIRE_UNREACHABLE, "nobody");
    CHECK_FALSE(caller.is_trouble_temporary(1));
}

}  // namespace links_test

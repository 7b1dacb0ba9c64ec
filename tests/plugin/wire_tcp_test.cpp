// wire_tcp_test.cpp - goal: a peer of the tcp wire can only harm its own connection, and the reason
// is told in words. Method: a plain socket sends every kind of wrong message, beside a connection
// that goes on working. The conformance kit checks the rules of all wires.
#include "tests/plugin/wire_host.h"

#include <dirent.h>

#include <set>

namespace wire_tcp_test {

namespace {

using moorage::test::frame_of;
using moorage::test::hello_frame;
using moorage::test::message_frame;
using moorage::test::received_event;
using moorage::test::rude_socket;
using moorage::test::wire_host;
using moorage::test::wire_limits;

// A node that listens, and another that is connected to it and still is at the end.
struct two_nodes {
    explicit two_nodes(const moorage_wire_limits &limits = wire_limits()) {
        REQUIRE(far.open(limits).ok());
        REQUIRE(far.listen().ok());
        REQUIRE(near.open().ok());
        REQUIRE(near.connect(far.address, near_connection).ok());
        near.wait_for(MOORAGE_WIRE_CONNECTED, &far);
        far_connection = far.wait_for(MOORAGE_WIRE_ACCEPTED).event.connection;
    }
    ~two_nodes() {
        CHECK(near.send(near_connection, "still here") == MOORAGE_WIRE_DONE);
        CHECK(far.wait_for(MOORAGE_WIRE_MESSAGE, &near).bytes == "still here");
    }
    // Connected by hand: greeted, accepted.
    std::unique_ptr<rude_socket> connect_greeted() {
        auto peer = std::make_unique<rude_socket>(far.address);
        peer->say(hello_frame());
        last_accepted = far.wait_for(MOORAGE_WIRE_ACCEPTED).event.connection;
        CHECK(peer->hear(32) == hello_frame());
        return peer;
    }
    wire_host far, near;
    uint64_t near_connection = 0, far_connection = 0, last_accepted = 0;
};

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

size_t open_files() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) ++count;
    closedir(folder);
    return count;
}

}  // namespace

TEST_CASE("bytes instead of a greeting are turned away, with a guess at what they are") {
    struct {
        std::string bytes;
        const char *words;
    } cases[] = {{"GET / HTTP/1.1\r\nHost: node\r\n\r\n", "HTTP"},
                 {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), "TLS"},
                 {"\xff\xfe garbage garbage garbage", "not of the tcp wire"},
                 {frame_of(24, 1, std::string(24, 'x')), "cannot be read"},
                 {frame_of(5, 2, "first"), "not of the tcp wire"},
                 {frame_of(1 << 30, 1, ""), "not of the tcp wire"},
                 {frame_of(24, 9, ""), "not of the tcp wire"}};
    two_nodes nodes;
    for (const auto &[bytes, words] : cases) {
        const std::string said = bytes;
        CAPTURE(said);
        rude_socket peer(nodes.far.address);
        peer.say(bytes);
        const received_event received = nodes.far.wait_for(MOORAGE_WIRE_TURNED_AWAY);
        CHECK(received.event.reason == MOORAGE_WIRE_MALFORMED);
        CHECK(received.event.connection == nodes.far.listener);
        CHECK(received.event.count == 1);
        CHECK_MESSAGE(has(received.words, words), received.words);
        CHECK(received.address.starts_with("127.0.0.1:"));
    }
}

TEST_CASE("another version is refused in words, which reach the peer") {
    two_nodes nodes;
    rude_socket peer(nodes.far.address);
    peer.say(hello_frame(7));
    const received_event received = nodes.far.wait_for(MOORAGE_WIRE_TURNED_AWAY);
    CHECK(received.event.reason == MOORAGE_WIRE_MALFORMED);
    CHECK(has(received.words, "version 7 of the tcp wire there, 1 here"));
    const std::string goodbye = peer.hear(256);
    REQUIRE(goodbye.size() > 9);
    CHECK(goodbye[4] == 3);
    CHECK(goodbye[8] == MOORAGE_WIRE_MALFORMED);
    CHECK(has(goodbye, "version 7"));
}

TEST_CASE("a greeting that stops, or never comes, ends by itself") {
    moorage_wire_limits limits = wire_limits();
    limits.connect_ns = 300'000'000;
    two_nodes nodes(limits);
    rude_socket silent(nodes.far.address), half(nodes.far.address);
    half.say(hello_frame().substr(0, 5));
    int32_t slow = 0;
    while (slow < 2) {
        const received_event received = nodes.far.wait_for(MOORAGE_WIRE_TURNED_AWAY);
        CHECK(received.event.reason == MOORAGE_WIRE_TOO_SLOW);
        slow += static_cast<int32_t>(received.event.count);
    }
    rude_socket gone(nodes.far.address);
    gone.say(hello_frame().substr(0, 20));
    gone.close();
    const received_event received = nodes.far.wait_for(MOORAGE_WIRE_TURNED_AWAY);
    CHECK(received.event.reason == MOORAGE_WIRE_LOST);
    CHECK(has(received.words, "hung up instead of a greeting"));
}

TEST_CASE("a length beyond what is taken ends the connection before memory is taken for it") {
    two_nodes nodes;
    for (const uint32_t length : {(1u << 20) + 1, 1u << 30, 0xffffffffu}) {
        const auto peer = nodes.connect_greeted();
        peer->say(frame_of(length, 2, "begin"));
        const received_event received = nodes.far.wait_for(MOORAGE_WIRE_CLOSED);
        CHECK(received.event.connection == nodes.last_accepted);
        CHECK(received.event.reason == MOORAGE_WIRE_TOO_LONG);
        CHECK(has(received.words, (std::to_string(length) + " bytes").c_str()));
        CHECK(has(received.words, "1048576"));
    }
}

TEST_CASE("frames that have no place in a conversation end it") {
    two_nodes nodes;
    for (const std::string &bytes : {frame_of(0, 2, ""), hello_frame(), frame_of(8, 0, "12345678"),
                                     frame_of(8, 77, "12345678"), frame_of(3000, 3, "goodbye")}) {
        const auto peer = nodes.connect_greeted();
        peer->say(message_frame("a sound one") + bytes);
        CHECK(nodes.far.wait_for(MOORAGE_WIRE_MESSAGE).bytes == "a sound one");
        const received_event received = nodes.far.wait_for(MOORAGE_WIRE_CLOSED);
        CHECK(received.event.reason == MOORAGE_WIRE_MALFORMED);
    }
}

TEST_CASE("a message in pieces of a byte arrives, one that breaks off does not") {
    two_nodes nodes;
    const auto peer = nodes.connect_greeted();
    const std::string frame = message_frame("byte by byte");
    for (const char byte : frame) {
        peer->say(std::string(1, byte));
        for (const received_event &received : nodes.far.poll(0))
            nodes.far.kept_events.push_back(received);
    }
    CHECK(nodes.far.wait_for(MOORAGE_WIRE_MESSAGE).bytes == "byte by byte");
    for (const bool reset : {false, true}) {
        const auto second_peer = nodes.connect_greeted();
        second_peer->say(frame_of(500'000, 2, std::string(100'000, 'z')));
        nodes.far.poll();
        reset ? second_peer->reset() : second_peer->close();
        const received_event received = nodes.far.wait_for(MOORAGE_WIRE_CLOSED);
        CHECK(received.event.reason == MOORAGE_WIRE_LOST);
        CHECK(received.bytes.empty());
        CHECK(!received.words.empty());
    }
}

TEST_CASE("a goodbye ends in order, and its words are only what can be printed") {
    two_nodes nodes;
    const auto peer = nodes.connect_greeted();
    const std::string words = std::string(1, MOORAGE_WIRE_TOO_MANY) + "full\x1b[31m\n";
    peer->say(message_frame("last") + frame_of(static_cast<uint32_t>(words.size()), 3, words));
    CHECK(nodes.far.wait_for(MOORAGE_WIRE_MESSAGE).bytes == "last");
    const received_event received = nodes.far.wait_for(MOORAGE_WIRE_CLOSED);
    CHECK(received.event.reason == MOORAGE_WIRE_TOO_MANY);
    CHECK(received.words == "the peer says: full?[31m?");
}

// A wire with 2 handshakes has 16 places for silent peers (8 a handshake).
constexpr size_t silent_places = 16;

TEST_CASE("silent sockets give way to who comes, and cost one event") {
    moorage_wire_limits limits = wire_limits();
    limits.handshakes_max = 2;
    limits.connect_ns = 60'000'000'000;
    two_nodes nodes(limits);
    std::vector<std::unique_ptr<rude_socket>> silent;
    for (size_t i = 0; i < silent_places + 4; ++i)
        silent.push_back(std::make_unique<rude_socket>(nodes.far.address));
    const received_event received = nodes.far.wait_for(MOORAGE_WIRE_TURNED_AWAY);
    CHECK(received.event.reason == MOORAGE_WIRE_TOO_MANY);
    CHECK(received.event.count == 4);
    CHECK(has(received.words, "16 connections that have not greeted are there"));
    // The oldest heard why, the others nothing yet.
    for (size_t i = 0; i < silent.size(); ++i) {
        CAPTURE(i);
        char first;
        const bool gone = ::recv(silent[i]->descriptor, &first, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
        CHECK(gone == (i < 4));
    }
    CHECK(has(silent.front()->hear(200), "the oldest gives way"));
    for (int i = 0; i < 8; ++i) nodes.connect_greeted();
}

TEST_CASE("the network that has most of the silent sockets loses the first") {
    moorage_wire_limits limits = wire_limits();
    limits.handshakes_max = 2;
    limits.connect_ns = 60'000'000'000;
    two_nodes nodes(limits);
    rude_socket oldest(nodes.far.address, 9);  // and the only one of its network
    std::vector<std::unique_ptr<rude_socket>> many;
    for (size_t i = 0; i < silent_places + 3; ++i)
        many.push_back(std::make_unique<rude_socket>(nodes.far.address, 2));
    CHECK(nodes.far.wait_for(MOORAGE_WIRE_TURNED_AWAY).event.count == 4);
    char first;
    CHECK(::recv(oldest.descriptor, &first, 1, MSG_DONTWAIT | MSG_PEEK) < 0);
    oldest.say(hello_frame());
    nodes.far.wait_for(MOORAGE_WIRE_ACCEPTED);
    CHECK(oldest.hear(32) == hello_frame());
}

TEST_CASE("handshakes that stall give way to who waits for a place") {
    moorage_wire_limits limits = wire_limits();
    limits.handshakes_max = 2;
    limits.connect_ns = 60'000'000'000;
    two_nodes nodes(limits);
    std::vector<std::unique_ptr<rude_socket>> half;
    for (int i = 0; i < 6; ++i) {
        half.push_back(std::make_unique<rude_socket>(nodes.far.address));
        half.back()->say(hello_frame().substr(0, 5));
    }
    nodes.connect_greeted();
    for (int i = 0; i < 2; ++i) {
        char first;
        CHECK(::recv(half[i]->descriptor, &first, 1, 0) == 0);  // it is closed, without a word
    }
}

TEST_CASE("handshakes begin no faster than they may; who waits for its turn in vain is told") {
    moorage_wire_limits limits = wire_limits();
    limits.handshakes_per_s = 1;
    limits.connect_ns = 300'000'000;
    two_nodes nodes(limits);                                              // that was one
    for (int i = 0; i < 20; ++i) rude_socket(nodes.far.address).reset();  // they take no turn
    std::vector<std::unique_ptr<rude_socket>> peers;
    for (int i = 0; i < 6; ++i) {
        peers.push_back(std::make_unique<rude_socket>(nodes.far.address));
        peers.back()->say(hello_frame());
    }
    size_t in_vain = 0, accepted = 0;
    while (in_vain + accepted < peers.size())
        for (const received_event &received : nodes.far.poll()) {
            accepted += received.event.kind == MOORAGE_WIRE_ACCEPTED;
            if (received.event.kind != MOORAGE_WIRE_TURNED_AWAY ||
                received.event.reason != MOORAGE_WIRE_TOO_MANY)
                continue;
            in_vain += received.event.count;
            CHECK(has(received.words, "its turn for a handshake did not come in time"));
        }
    CHECK(accepted <= 3);  // one a second, beside a machine that stands still for one
    CHECK(has(peers.back()->hear(200), "try again"));
}

TEST_CASE("who comes and goes leaves nothing behind") {
    moorage_wire_limits limits = wire_limits();
    limits.handshakes_per_s = 100'000;
    two_nodes nodes(limits);
    const auto visit = [&](int count) {
        for (int i = 0; i < count; ++i) {
            const auto peer = nodes.connect_greeted();
            peer->say(message_frame("hello") + (i % 2 ? frame_of(0, 2, "") : ""));
            CHECK(nodes.far.wait_for(MOORAGE_WIRE_MESSAGE).bytes == "hello");
            peer->close();
            nodes.far.wait_for(MOORAGE_WIRE_CLOSED);
        }
    };
    visit(5);
    const size_t old_count = open_files();
    visit(300);
    CHECK(open_files() == old_count);
}

TEST_CASE("without encryption nothing leaves or enters this machine unless it is said twice") {
    wire_host careful;
    REQUIRE(careful.open().ok());
    const auto refused = careful.listen("0.0.0.0:0");
    REQUIRE(!refused.ok());
    CHECK(has(refused.failure().text, "security"));
    CHECK(has(refused.failure().text, "open_network"));
    uint64_t number = 0;
    REQUIRE(careful.connect("192.0.2.1:9", number).ok());
    const received_event received = careful.wait_for(MOORAGE_WIRE_CLOSED);
    CHECK(received.event.connection == number);
    CHECK(received.event.reason == MOORAGE_WIRE_UNREACHABLE);
    CHECK(has(received.words, "open_network"));
    wire_host open({{"open_network", true, "a test"}});
    REQUIRE(open.open().ok());
    CHECK(open.listen("0.0.0.0:0").ok());
}

TEST_CASE("addresses are read strictly, and names are looked up") {
    two_nodes nodes;
    uint64_t number = 0;
    for (const char *text : {"127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:70000", "127.0.0.1:-1",
                             "127.0.0.1:8x", "::1:80", "[::1:80", "[nobody]:80", "127.0.0.1:0"}) {
        CAPTURE(text);
        const auto refused = nodes.near.connect(text, number);
        REQUIRE(!refused.ok());
        CHECK(has(refused.failure().text, "host:port"));
    }
    const auto taken = nodes.near.listen(nodes.far.address);
    REQUIRE(!taken.ok());
    CHECK(has(taken.failure().text, nodes.far.address.c_str()));
    CHECK(has(taken.failure().text, "in use; stop who has it"));
    CHECK(!nodes.near.listen("localhost:0").ok());  // the system chooses no address for us
    const std::string port = nodes.far.address.substr(nodes.far.address.rfind(':'));
    REQUIRE(nodes.near.connect("localhost" + port, number).ok());
    CHECK(nodes.near.wait_for(MOORAGE_WIRE_CONNECTED, &nodes.far).event.connection == number);
    nodes.far.wait_for(MOORAGE_WIRE_ACCEPTED);
    REQUIRE(nodes.near.connect("no-such-host.invalid:80", number).ok());
    const received_event received = nodes.near.wait_for(MOORAGE_WIRE_CLOSED, &nodes.far);
    CHECK(received.event.reason == MOORAGE_WIRE_UNREACHABLE);
}

TEST_CASE("a peer that takes nothing fills its own queue, and its end is told of") {
    two_nodes nodes;
    const auto peer = nodes.connect_greeted();
    const std::string big(200'000, 'b');
    int taken = 0;
    while (taken < 500 && nodes.far.send(nodes.last_accepted, big) <= MOORAGE_WIRE_TAKEN) ++taken;
    CHECK(taken < 500);
    CHECK(nodes.far.send(nodes.last_accepted, big) == MOORAGE_WIRE_FULL);
    CHECK(nodes.far.send(nodes.far_connection, "others are not held up") == MOORAGE_WIRE_DONE);
    CHECK(nodes.near.wait_for(MOORAGE_WIRE_MESSAGE, &nodes.far).bytes == "others are not held up");
    peer->reset();
    const received_event received = nodes.far.wait_for(MOORAGE_WIRE_CLOSED);
    CHECK(received.event.connection == nodes.last_accepted);
    CHECK(received.event.reason == MOORAGE_WIRE_LOST);
    CHECK(nodes.far.send(nodes.last_accepted, big) == MOORAGE_WIRE_GONE);
}

}  // namespace wire_tcp_test

// wire_memory_test.cpp - goal: a lack of memory costs the tcp wire only the connection that asked
// for it. No call throws, every end is reported once, nothing stays behind, and with memory the
// next connection works. Method: two engines on one thread do the same each time: connect, be
// refused, queue more than the kernel takes, receive HTTP, close. The n-th request for memory of
// one of them fails, and some after it, for every n. Through TLS, OpenSSL's requests fail too.
#include <doctest/doctest.h>

#include <openssl/crypto.h>

#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <thread>

#include "plugins/wire/tcp/engine.hpp"
#include "plugins/wire/tcp/tls.hpp"
#include "tests/plugin/wire_certificates.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"

namespace {

// Which requests of this thread fail: after `successes` that do not, `failing` of them.
enum class requester { engine, openssl };
struct shortage_of_test {
    bool enabled = false;
    requester requests = requester::engine;
    long successes = 0, failing = 0;
    bool take_refusal(requester caller) {
        if (!enabled || caller != requests || failing == 0) return false;
        if (successes > 0) return --successes, false;
        --failing;
        return true;
    }
};
thread_local shortage_of_test supply;
std::atomic<long> held{0};

}  // namespace

// The thread sanitizer has its own, which cannot be replaced.
#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)
void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
    void *const memory =
        supply.take_refusal(requester::engine) ? nullptr : std::malloc(bytes ? bytes : 1);
    if (memory) ++held;
    return memory;
}
void *operator new(size_t bytes) {
    void *const memory = operator new(bytes, std::nothrow);
    if (!memory) throw std::bad_alloc();
    return memory;
}
void operator delete(void *old) noexcept {
    if (old) --held;
    std::free(old);
}
void operator delete(void *old, size_t) noexcept { operator delete(old); }
#endif

// In this program, whose requests for memory are counted, and not in a library.
std::unique_ptr<tcp_wire::secure_context> tcp_wire::open_secure_context(const secure_files &files) {
    return std::make_unique<tls_context>(files);
}

namespace {

using moorage::test::certificate_folder;
using moorage::test::certify;

// Before OpenSSL has asked for anything.
const bool openssl_asks_too = [] {
    return CRYPTO_set_mem_functions(
               [](size_t bytes, const char *, int) {
                   return supply.take_refusal(requester::openssl) ? nullptr : std::malloc(bytes);
               },
               [](void *old, size_t bytes, const char *, int) {
                   return supply.take_refusal(requester::openssl) ? nullptr
                                                                  : std::realloc(old, bytes);
               },
               [](void *old, const char *, int) { std::free(old); }) == 1;
}();

moorage_wire_limits limits() {
    moorage_wire_limits result{};
    result.size = sizeof(result);
    result.connections_max = 8, result.handshakes_max = 8, result.handshakes_per_s = 1'000'000;
    result.queue_messages_max = 100, result.queue_bytes_max = 64 << 20,
    result.receive_bytes_max = 8 << 20;
    result.message_bytes_max[0] = result.message_bytes_max[1] = 4 << 20;
    result.connect_ns = 3'000'000'000, result.close_ns = 500'000'000;
    return result;
}

tcp_wire::settings settings_of(const char *name, const certificate_folder *files) {
    tcp_wire::settings set;
    set.tls = files != nullptr;
    if (!files) return set;
    set.certificate = files->file(std::string(name) + ".pem");
    set.key = files->file(std::string(name) + ".key");
    set.ca = files->file("ca.pem");
    return set;
}

// An engine, its events, and whether memory runs out within its calls.
class side {
public:
    side(const char *name, const certificate_folder *files)
        : engine_(settings_of(name, files), limits()) {}

    bool starved = false;
    std::map<uint64_t, bool> connections;  // known to the host, and whether it is closed
    std::string last;                      // message
    uint64_t accepted = 0;                 // latest
    std::string bound;
    uint64_t turned_away = 0;

    void listen() { connections[listener_ = engine_.listen("127.0.0.1:0", bound)] = false; }
    uint64_t listener() const { return listener_; }
    // 0: no memory even to begin.
    uint64_t connect(const std::string &address) {
        const char *const text = address.c_str();
        moorage::wire_target target{};
        target.size = sizeof(target);
        target.host_addresses = &text, target.address_count = 1;
        uint64_t number = 0;
        try {
            call([&] { number = engine_.connect(target); });
        } catch (const std::bad_alloc &) {  // which the thunks of the SDK say to the host
            return 0;
        }
        connections[number] = false;
        return number;
    }
    uint32_t send(uint64_t connection, const std::string &bytes) {
        const moorage_wire_part part{bytes.data(), bytes.size(), 0};
        std::string refused;
        uint32_t done = 0;
        call([&] { done = engine_.send(connection, {&part, 1}, 7, refused); });
        CHECK(done != MOORAGE_WIRE_REFUSED);
        return done;
    }
    void close(uint64_t number, bool at_once = false) {
        call([&] { engine_.close(number, at_once); });
    }
    void poll() {
        moorage_wire_event events[16];
        uint32_t count = 0;
        call([&] { count = engine_.poll(events, 0); });
        for (uint32_t i = 0; i < count; ++i) handle_event(events[i]);
    }
    bool is_open(uint64_t number) const {
        const auto found = connections.find(number);
        return found != connections.end() && !found->second;
    }
    size_t open() const {
        return static_cast<size_t>(std::count_if(connections.begin(), connections.end(),
                                                 [](auto &entry) { return !entry.second; }));
    }

private:
    // Throws the engine's exceptions; only `connect` may throw.
    template <class Work>
    void call(Work &&work) {
        supply.enabled = starved;
        try {
            work();
        } catch (...) {
            supply.enabled = false;
            throw;
        }
        supply.enabled = false;
    }
    void handle_event(const moorage_wire_event &event) {
        if (event.kind == MOORAGE_WIRE_TURNED_AWAY) {
            turned_away += event.count;
            return;
        }
        if (event.kind == MOORAGE_WIRE_ACCEPTED) {
            CHECK(connections.count(event.connection) == 0);
            connections[accepted = event.connection] = false;
        }
        CHECK(is_open(event.connection));  // nothing follows CLOSED, nothing is of strangers
        if (event.kind == MOORAGE_WIRE_CLOSED) connections[event.connection] = true;
        if (event.kind == MOORAGE_WIRE_MESSAGE) {
            last.assign(static_cast<const char *>(event.plugin_data), event.bytes);
            call([&] { engine_.release(event.message); });
        }
    }

    tcp_wire::engine engine_;
    uint64_t listener_ = 0;
};

class pair_of_sides {
public:
    explicit pair_of_sides(const certificate_folder *files) : a("a", files), b("b", files) {}
    side a, b;  // b listens

    // Both poll until `done`, at most for 5 s.
    template <class Done>
    bool poll_until(Done &&done) {
        const auto begin = std::chrono::steady_clock::now();
        while (!done()) {
            if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) return false;
            a.poll(), b.poll();
        }
        return true;
    }
    // A new connection over which a message comes back.
    bool is_working() {
        b.accepted = 0, a.last.clear(), b.last.clear();
        const uint64_t to_b = a.connect(b.bound);
        bool asked = false, answered = false;
        const bool came = poll_until([&] {
            if (!asked && a.is_open(to_b)) asked = a.send(to_b, "ask") == MOORAGE_WIRE_DONE;
            if (b.last == "ask" && !answered)
                answered = b.send(b.accepted, "answer") == MOORAGE_WIRE_DONE;
            return a.last == "answer" || !a.is_open(to_b);
        });
        return came && a.last == "answer";
    }
};

const std::string &long_message() {
    static const std::string bytes(3 << 20, 'm');
    return bytes;
}

// The work of both sides while memory runs out.
void run_while_starved(pair_of_sides &sides) {
    const uint64_t calls = sides.a.connect(sides.b.bound);
    const uint64_t nowhere = sides.a.connect("127.0.0.1:1");
    REQUIRE(sides.poll_until([&] { return sides.b.accepted != 0 || !sides.a.is_open(calls); }));
    REQUIRE(sides.poll_until([&] { return !sides.a.is_open(nowhere); }));
    const uint64_t other_end = sides.b.accepted;
    for (int i = 0; i < 4; ++i) sides.a.send(calls, long_message());
    for (int i = 0; i < 4; ++i) sides.b.send(other_end, long_message());
    for (int i = 0; i < 200; ++i) sides.a.poll(), sides.b.poll();
    sides.a.send(calls, "short");
    // A peer that speaks something else, and one that hangs up at once.
    boost::asio::io_context io;
    boost::asio::ip::tcp::socket rude(io), gone(io);
    const auto port = static_cast<uint16_t>(std::stoi(sides.b.bound.substr(10)));
    const boost::asio::ip::tcp::endpoint listener_address(boost::asio::ip::address_v4::loopback(),
                                                          port);
    rude.connect(listener_address), gone.connect(listener_address);
    rude.send(boost::asio::buffer("GET / HTTP/1.1\r\n\r\n", 18));
    gone.close();
    for (int i = 0; i < 200; ++i) sides.a.poll(), sides.b.poll();
    if (sides.a.is_open(calls)) sides.a.close(calls);
    for (int i = 0; i < 200; ++i) sides.a.poll(), sides.b.poll();
    if (sides.b.is_open(other_end)) sides.b.close(other_end, /*at_once=*/true);
    for (int i = 0; i < 50; ++i) sides.a.poll(), sides.b.poll();
}

// True: more than `successes` such requests were made.
bool run_round(const certificate_folder *files, bool of_b, requester requests, long successes,
               long failing) {
    CAPTURE(of_b);
    CAPTURE(successes);
    CAPTURE(failing);
    pair_of_sides sides(files);
    sides.b.listen();
    REQUIRE(sides.is_working());
    supply = {false, requests, successes, failing};
    sides.b.accepted = 0;
    (of_b ? sides.b : sides.a).starved = true;
    run_while_starved(sides);
    sides.a.starved = sides.b.starved = false;
    const bool happened = supply.failing < failing;
    supply = {};
    REQUIRE(sides.is_working());
    CHECK(sides.b.is_open(sides.b.listener()));
    for (side *closing : {&sides.a, &sides.b})
        for (const auto &[number, closed] : std::map(closing->connections))
            if (!closed) closing->close(number);
    REQUIRE(sides.poll_until([&] { return sides.a.open() + sides.b.open() == 0; }));
    return happened;
}

void run_all_rounds(const certificate_folder *files, requester requests, long step) {
    for (const long successes : {1L, 1'000'000L})  // made once and kept
        run_round(files, false, requests, successes, 1);
    for (const bool of_b : {false, true})
        for (const long failing : {1L, 2L, 20L}) {
            long successes = 0;
            const long kept = held;
            while (run_round(files, of_b, requests, successes, failing)) successes += step;

            CHECK(successes > 10);
            CHECK(held.load() == kept);
        }
}

}  // namespace

TEST_CASE("in the clear, whichever request for memory fails") {
    if (moorage::test::thread_checks) return moorage::test::skip("memory is the sanitizer's");
    run_all_rounds(nullptr, requester::engine, 1);
}

TEST_CASE("through TLS, whichever request for memory fails") {
    if (moorage::test::thread_checks) return moorage::test::skip("memory is the sanitizer's");
    certificate_folder files;
    files.write("a", certify("DNS:node-a", &files.authority));
    files.write("b", certify("DNS:node-b", &files.authority));
    run_all_rounds(&files, requester::engine, moorage::test::sanitized ? 5 : 1);
    REQUIRE(openssl_asks_too);
    run_all_rounds(&files, requester::openssl, moorage::test::sanitized ? 997 : 199);  // thousands
}

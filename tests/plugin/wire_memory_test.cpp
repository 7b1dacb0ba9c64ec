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
#include "tests/plugin/wire_certificates.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"

namespace {

// Which requests of this thread fail: after `before` that do not, `failing` of them.
enum class whose { engine, openssl };
struct shortage_of_test {
    bool on = false;
    whose requests = whose::engine;
    long before = 0, failing = 0;
    bool refuses(whose asks) {
        if (!on || asks != requests || failing == 0) return false;
        if (before > 0) return --before, false;
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
    void *const made = supply.refuses(whose::engine) ? nullptr : std::malloc(bytes ? bytes : 1);
    if (made) ++held;
    return made;
}
void *operator new(size_t bytes) {
    void *const made = operator new(bytes, std::nothrow);
    if (!made) throw std::bad_alloc();
    return made;
}
void operator delete(void *old) noexcept {
    if (old) --held;
    std::free(old);
}
void operator delete(void *old, size_t) noexcept { operator delete(old); }
#endif

namespace {

using moorage::test::certificate_folder;
using moorage::test::certify;

// Before OpenSSL has asked for anything.
const bool openssl_asks_too = [] {
    return CRYPTO_set_mem_functions(
               [](size_t bytes, const char *, int) {
                   return supply.refuses(whose::openssl) ? nullptr : std::malloc(bytes);
               },
               [](void *old, size_t bytes, const char *, int) {
                   return supply.refuses(whose::openssl) ? nullptr : std::realloc(old, bytes);
               },
               [](void *old, const char *, int) { std::free(old); }) == 1;
}();

moorage_wire_limits limits() {
    moorage_wire_limits of{};
    of.size = sizeof(of);
    of.connections_max = 8, of.handshakes_max = 8, of.handshakes_per_s = 1'000'000;
    of.queue_messages_max = 100, of.queue_bytes_max = 64 << 20, of.receive_bytes_max = 8 << 20;
    of.message_bytes_max[0] = of.message_bytes_max[1] = 4 << 20;
    of.connect_ns = 3'000'000'000, of.close_ns = 500'000'000;
    return of;
}

tcp_wire::settings settings_of(const char *who, const certificate_folder *files) {
    tcp_wire::settings set;
    set.tls = files != nullptr;
    if (!files) return set;
    set.certificate = files->file(std::string(who) + ".pem");
    set.key = files->file(std::string(who) + ".key");
    set.ca = files->file("ca.pem");
    return set;
}

// An engine, its events, and whether memory runs out within its calls.
class side {
public:
    side(const char *who, const certificate_folder *files)
        : engine_(settings_of(who, files), limits()) {}

    bool starved = false;
    std::map<uint64_t, bool> numbers;  // known to the host, and whether it is closed
    std::string last;                  // message
    uint64_t accepted = 0;             // latest
    std::string bound;
    uint64_t turned_away = 0;

    void listen() { numbers[listener_ = engine_.listen("127.0.0.1:0", bound)] = false; }
    uint64_t listener() const { return listener_; }
    // 0: no memory even to begin.
    uint64_t connect(const std::string &where) {
        const char *const text = where.c_str();
        moorage::wire_target target{};
        target.size = sizeof(target);
        target.host_addresses = &text, target.address_count = 1;
        uint64_t number = 0;
        try {
            call([&] { number = engine_.connect(target); });
        } catch (const std::bad_alloc &) {  // which the thunks of the SDK say to the host
            return 0;
        }
        numbers[number] = false;
        return number;
    }
    uint32_t send(uint64_t to, const std::string &bytes) {
        const moorage_wire_part part{bytes.data(), bytes.size(), 0};
        std::string refused;
        uint32_t done = 0;
        call([&] { done = engine_.send(to, {&part, 1}, 7, refused); });
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
        for (uint32_t i = 0; i < count; ++i) hear(events[i]);
    }
    bool is_open(uint64_t number) const {
        const auto at = numbers.find(number);
        return at != numbers.end() && !at->second;
    }
    size_t open() const {
        return static_cast<size_t>(
            std::count_if(numbers.begin(), numbers.end(), [](auto &one) { return !one.second; }));
    }

private:
    // Throws the engine's exceptions; only `connect` may throw.
    template <class Work>
    void call(Work &&work) {
        supply.on = starved;
        try {
            work();
        } catch (...) {
            supply.on = false;
            throw;
        }
        supply.on = false;
    }
    void hear(const moorage_wire_event &event) {
        if (event.kind == MOORAGE_WIRE_TURNED_AWAY) {
            turned_away += event.count;
            return;
        }
        if (event.kind == MOORAGE_WIRE_ACCEPTED) {
            CHECK(numbers.count(event.connection) == 0);
            numbers[accepted = event.connection] = false;
        }
        CHECK(is_open(event.connection));  // nothing follows CLOSED, nothing is of strangers
        if (event.kind == MOORAGE_WIRE_CLOSED) numbers[event.connection] = true;
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
    bool until(Done &&done) {
        const auto begin = std::chrono::steady_clock::now();
        while (!done()) {
            if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) return false;
            a.poll(), b.poll();
        }
        return true;
    }
    // A new connection over which a message comes back.
    bool works() {
        b.accepted = 0, a.last.clear(), b.last.clear();
        const uint64_t to_b = a.connect(b.bound);
        bool asked = false, answered = false;
        const bool came = until([&] {
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
void work(pair_of_sides &both) {
    const uint64_t calls = both.a.connect(both.b.bound);
    const uint64_t nowhere = both.a.connect("127.0.0.1:1");
    REQUIRE(both.until([&] { return both.b.accepted != 0 || !both.a.is_open(calls); }));
    REQUIRE(both.until([&] { return !both.a.is_open(nowhere); }));
    const uint64_t other_end = both.b.accepted;
    for (int i = 0; i < 4; ++i) both.a.send(calls, long_message());
    for (int i = 0; i < 4; ++i) both.b.send(other_end, long_message());
    for (int i = 0; i < 200; ++i) both.a.poll(), both.b.poll();
    both.a.send(calls, "short");
    // A peer that speaks something else, and one that hangs up at once.
    boost::asio::io_context io;
    boost::asio::ip::tcp::socket rude(io), gone(io);
    const auto port = static_cast<uint16_t>(std::stoi(both.b.bound.substr(10)));
    const boost::asio::ip::tcp::endpoint there(boost::asio::ip::address_v4::loopback(), port);
    rude.connect(there), gone.connect(there);
    rude.send(boost::asio::buffer("GET / HTTP/1.1\r\n\r\n", 18));
    gone.close();
    for (int i = 0; i < 200; ++i) both.a.poll(), both.b.poll();
    if (both.a.is_open(calls)) both.a.close(calls);
    for (int i = 0; i < 200; ++i) both.a.poll(), both.b.poll();
    if (both.b.is_open(other_end)) both.b.close(other_end, /*at_once=*/true);
    for (int i = 0; i < 50; ++i) both.a.poll(), both.b.poll();
}

// True: so many requests are made that `before` of them and one more came.
bool one_round(const certificate_folder *files, bool of_b, whose requests, long before,
               long failing) {
    CAPTURE(of_b);
    CAPTURE(before);
    CAPTURE(failing);
    pair_of_sides both(files);
    both.b.listen();
    REQUIRE(both.works());
    supply = {false, requests, before, failing};
    both.b.accepted = 0;
    (of_b ? both.b : both.a).starved = true;
    work(both);
    both.a.starved = both.b.starved = false;
    const bool happened = supply.failing < failing;
    supply = {};
    REQUIRE(both.works());
    CHECK(both.b.is_open(both.b.listener()));
    for (side *one : {&both.a, &both.b})
        for (const auto &[number, closed] : std::map(one->numbers))
            if (!closed) one->close(number);
    REQUIRE(both.until([&] { return both.a.open() + both.b.open() == 0; }));
    return happened;
}

void every_round(const certificate_folder *files, whose requests, long step) {
    for (const long before : {1L, 1'000'000L})  // made once and kept
        one_round(files, false, requests, before, 1);
    for (const bool of_b : {false, true})
        for (const long failing : {1L, 2L, 20L}) {
            long before = 0;
            const long kept = held;
            while (one_round(files, of_b, requests, before, failing)) before += step;

            CHECK(before > 10);
            CHECK(held.load() == kept);
        }
}

}  // namespace

TEST_CASE("in the clear, whichever request for memory fails") {
    if (moorage::test::thread_checks) return moorage::test::skip("memory is the sanitizer's");
    every_round(nullptr, whose::engine, 1);
}

TEST_CASE("through TLS, whichever request for memory fails") {
    if (moorage::test::thread_checks) return moorage::test::skip("memory is the sanitizer's");
    certificate_folder files;
    files.write("a", certify("DNS:node-a", &files.authority));
    files.write("b", certify("DNS:node-b", &files.authority));
    every_round(&files, whose::engine, moorage::test::sanitized ? 5 : 1);
    REQUIRE(openssl_asks_too);
    every_round(&files, whose::openssl, moorage::test::sanitized ? 997 : 199);  // thousands
}

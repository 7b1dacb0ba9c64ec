// wire_tls_test.cpp - goal: through TLS only peers take part that the authority vouches for, under
// the name that it gave them. Others do no harm. Method: certificates of the test, right and wrong,
// and a client made of OpenSSL alone that breaks off or shows nothing.
#include "tests/plugin/wire_certificates.h"
#include "tests/plugin/wire_host.h"

#include <openssl/ssl.h>
#include <sys/wait.h>

#include <fstream>
#include <iterator>

namespace {

using moorage::core::settings;
using moorage::test::certificate_folder;
using moorage::test::certified;
using moorage::test::certify;
using moorage::test::frame_of;
using moorage::test::hello_frame;
using moorage::test::message_frame;
using moorage::test::received_event;
using moorage::test::rude_socket;
using moorage::test::wire_host;
using moorage::test::wire_limits;
using moorage::test::write_revoked;

const certificate_folder &files() {
    static certificate_folder folder;
    static const bool written = [] {
        folder.write("a", certify("DNS:node-a", &folder.authority));
        folder.write("b", certify("DNS:node-b,DNS:another", &folder.authority));
        folder.write("expired", certify("DNS:node-b", &folder.authority, -3600));
        folder.write("nameless", certify("", &folder.authority));
        folder.write("address", certify("IP:127.0.0.1", &folder.authority));
        folder.write("star", certify("DNS:*.node", &folder.authority));
        const certified other_authority = certify("", nullptr);
        folder.write("other_ca", other_authority);
        folder.write("stranger", certify("DNS:node-b", &other_authority));
        return true;
    }();
    (void)written;
    return folder;
}

settings tls(const std::string &name, const std::string &ca = "ca") {
    return {{"security", std::string("tls"), "a test"},
            {"certificate", files().file(name + ".pem"), "a test"},
            {"key", files().file(name + ".key"), "a test"},
            {"ca", files().file(ca + ".pem"), "a test"}};
}

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

// A node that listens as node-a.
struct listening : wire_host {
    explicit listening(const moorage_wire_limits &limits = wire_limits(),
                       const settings &params = tls("a"))
        : wire_host(params) {
        REQUIRE(open(limits).ok());
        REQUIRE(listen().ok());
    }
};

// One that calls node-a at its address.
struct calling : wire_host {
    calling(const std::string &server_address, const settings &params) : wire_host(params) {
        REQUIRE(open().ok());
        REQUIRE(connect(server_address, number, "node-a").ok());
    }
    uint64_t number = 0;
};

// The text with which `a` refuses `b`.
std::string wait_turned_away(wire_host &a, wire_host &b) {
    const received_event received = a.wait_for(MOORAGE_WIRE_TURNED_AWAY, &b);
    CHECK(received.event.reason == MOORAGE_WIRE_STRANGER);
    return received.words;
}

// node-a's parameters, with a certificate revocation list.
settings with_revoked(const std::string &list) {
    settings params = tls("a");
    params.push_back({"revoked", files().file(list), "a test"});
    return params;
}

// OpenSSL as a client, with or without a certificate.
class bare_client {
public:
    bare_client(const std::string &address, const char *name, int version = TLS1_3_VERSION)
        : socket(address), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
        SSL_CTX_set_max_proto_version(context_.get(), version);
        if (name) {
            SSL_CTX_use_certificate_file(
                context_.get(), files().file(name + std::string(".pem")).c_str(), SSL_FILETYPE_PEM);
            SSL_CTX_use_PrivateKey_file(
                context_.get(), files().file(name + std::string(".key")).c_str(), SSL_FILETYPE_PEM);
        }
        ssl_.reset(SSL_new(context_.get()), SSL_free);
        SSL_set_fd(ssl_.get(), socket.descriptor);
        set_receive_timeout();
    }
    // Goes on with the handshake while `server` polls; whether it came to an end.
    bool try_handshake(wire_host &server) {
        for (int i = 0; i < 200; ++i) {
            const int answer = SSL_connect(ssl_.get());
            if (answer == 1) return true;
            const int error = SSL_get_error(ssl_.get(), answer);
            if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
            for (const received_event &received : server.poll())
                server.kept_events.push_back(received);
        }
        return false;
    }
    bool say(const std::string &bytes) {
        return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
               static_cast<int>(bytes.size());
    }
    rude_socket socket;

private:
    void set_receive_timeout() const {
        timeval none{0, 2000};
        ::setsockopt(socket.descriptor, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
    }
    std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
    std::shared_ptr<SSL> ssl_;
};

}  // namespace

TEST_CASE("two nodes know each other by the names in their certificates") {
    listening a;
    wire_host b(tls("b"));
    REQUIRE(b.open().ok());
    uint64_t number = 0;
    REQUIRE(b.connect(a.address, number, "node-a").ok());
    const received_event connected = b.wait_for(MOORAGE_WIRE_CONNECTED, &a);
    CHECK(connected.identity == "node-a");
    CHECK(connected.event.flags == MOORAGE_WIRE_SECURE);
    const received_event accepted = a.wait_for(MOORAGE_WIRE_ACCEPTED, &b);
    CHECK(accepted.identity == "node-b");
    CHECK(accepted.event.flags == MOORAGE_WIRE_SECURE);
    const std::string text(700'000, 's');
    CHECK(b.send(number, text) <= MOORAGE_WIRE_TAKEN);
    CHECK(a.wait_for(MOORAGE_WIRE_MESSAGE, &b).bytes == text);
    for (const char *wrong_name : {"node-b", "node", "NODE-A", "node-a.", "another"}) {
        REQUIRE(b.connect(a.address, number, wrong_name).ok());
        const received_event received = b.wait_for(MOORAGE_WIRE_CLOSED, &a);
        CHECK(received.event.reason == MOORAGE_WIRE_STRANGER);
        CHECK(has(received.words, (std::string("it is node-a, and not ") + wrong_name).c_str()));
    }
}

TEST_CASE("whom the authority does not vouch for takes no part, and both sides hear why") {
    struct {
        const char *name, *words;
    } cases[] = {{"stranger", "certificate is refused"},
                 {"expired", "expired"},
                 {"nameless", "names nobody"},
                 {"address", "names nobody"},
                 {"star", "names nobody"}};
    listening a;
    for (const auto &[file_name, words] : cases) {
        const std::string name = file_name;
        CAPTURE(name);
        calling b(a.address, tls(name));
        const std::string reason = wait_turned_away(a, b);
        CHECK_MESSAGE(has(reason, words), reason);
        const received_event closed = b.wait_for(MOORAGE_WIRE_CLOSED, &a);
        CHECK(closed.event.connection == b.number);
        CHECK(!closed.words.empty());
    }
    // A server whom the client's authority does not know.
    wire_host b(tls("stranger", "other_ca"));
    REQUIRE(b.open().ok());
    uint64_t number = 0;
    REQUIRE(b.connect(a.address, number).ok());
    const received_event received = b.wait_for(MOORAGE_WIRE_CLOSED, &a);
    CHECK(received.event.reason == MOORAGE_WIRE_STRANGER);
    CHECK(a.wait_for(MOORAGE_WIRE_TURNED_AWAY, &b).event.reason == MOORAGE_WIRE_STRANGER);
}

TEST_CASE("who is revoked takes no part, and nobody does by a list that is out of date") {
    const certified gone = certify("DNS:node-b", &files().authority);
    files().write("gone", gone);
    write_revoked(files().file("revoked.crl"), files().authority, {gone});
    write_revoked(files().file("old.crl"), files().authority, {}, -60);
    const auto words_of = [](const char *name, const char *list) {
        listening a(wire_limits(), with_revoked(list));
        calling b(a.address, tls(name));
        return wait_turned_away(a, b);
    };
    CHECK(has(words_of("gone", "revoked.crl"), "revoked"));
    CHECK(has(words_of("b", "old.crl"), "CRL has expired"));
    listening a(wire_limits(), with_revoked("revoked.crl"));
    calling b(a.address, tls("b"));
    CHECK(b.wait_for(MOORAGE_WIRE_CONNECTED, &a).event.connection == b.number);
    for (const char *file : {"a.pem", "missing.crl"}) {
        wire_host host(with_revoked(file));
        const auto refused = host.open();
        REQUIRE(!refused.ok());
        CHECK(has(refused.failure().text, "revoked"));
        CHECK(has(refused.failure().text, file));
    }
}

TEST_CASE("a client without certificate, or of an older TLS, is turned away") {
    listening a;
    bare_client nobody(a.address, nullptr);
    nobody.try_handshake(a);  // TLS 1.3 lets the client believe that it is in
    const received_event received = a.wait_for(MOORAGE_WIRE_TURNED_AWAY);
    CHECK(received.event.reason == MOORAGE_WIRE_STRANGER);
    CHECK(has(received.words, "no certificate"));
    bare_client old(a.address, "b", TLS1_2_VERSION);
    CHECK(!old.try_handshake(a));
    const received_event older = a.wait_for(MOORAGE_WIRE_TURNED_AWAY);
    CHECK(older.event.reason == MOORAGE_WIRE_MALFORMED);
    CHECK(has(older.words, "TLS 1.3"));
}

TEST_CASE("bytes that are no TLS, and TLS that breaks off, end what they began") {
    moorage_wire_limits limits = wire_limits();
    limits.connect_ns = 400'000'000;
    listening a(limits);
    for (const std::string &bytes :
         {std::string("GET / HTTP/1.1\r\n\r\n"), hello_frame(), std::string(300, '\xee')}) {
        rude_socket peer(a.address);
        peer.say(bytes);
        CHECK(a.wait_for(MOORAGE_WIRE_TURNED_AWAY).event.reason == MOORAGE_WIRE_MALFORMED);
    }
    {
        rude_socket half(a.address);
        half.say(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8));  // a record's begin
        CHECK(a.wait_for(MOORAGE_WIRE_TURNED_AWAY).event.reason == MOORAGE_WIRE_TOO_SLOW);
    }
    {
        rude_socket gone(a.address);
        gone.say(std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8));
        gone.close();
        CHECK(a.wait_for(MOORAGE_WIRE_TURNED_AWAY).event.reason == MOORAGE_WIRE_LOST);
    }
    bare_client cut(a.address, "b");
    REQUIRE(cut.try_handshake(a));
    CHECK(cut.say(hello_frame()));
    const uint64_t number = a.wait_for(MOORAGE_WIRE_ACCEPTED).event.connection;
    CHECK(cut.say(message_frame("whole") + frame_of(5000, 2, std::string(1000, 'h'))));
    CHECK(a.wait_for(MOORAGE_WIRE_MESSAGE).bytes == "whole");
    cut.socket.close();  // without a word of TLS: truncation
    const received_event received = a.wait_for(MOORAGE_WIRE_CLOSED);
    CHECK(received.event.connection == number);
    CHECK(received.event.reason == MOORAGE_WIRE_LOST);
}

TEST_CASE("one side with TLS and the other without come to an end that says so") {
    uint64_t number = 0;
    {
        listening a;
        wire_host plain;
        REQUIRE(plain.open().ok());
        REQUIRE(plain.connect(a.address, number).ok());
        const received_event received = plain.wait_for(MOORAGE_WIRE_CLOSED, &a);
        CHECK(received.event.reason == MOORAGE_WIRE_LOST);
        CHECK(has(received.words, "is security the same on both sides?"));
        CHECK(a.wait_for(MOORAGE_WIRE_TURNED_AWAY, &plain).event.reason == MOORAGE_WIRE_MALFORMED);
    }
    wire_host plain, b(tls("b"));
    REQUIRE(plain.open().ok());
    REQUIRE(plain.listen().ok());
    REQUIRE(b.open().ok());
    REQUIRE(b.connect(plain.address, number).ok());
    CHECK(has(plain.wait_for(MOORAGE_WIRE_TURNED_AWAY, &b).words, "speaks TLS"));
    CHECK(b.wait_for(MOORAGE_WIRE_CLOSED, &plain).event.reason == MOORAGE_WIRE_MALFORMED);
}

TEST_CASE("files that cannot be used are named, and nothing of them is told") {
    const std::string secret = [] {
        std::ifstream input(files().file("a.key"));
        return std::string(std::istreambuf_iterator<char>(input), {});
    }();
    for (const char *key : {"certificate", "key", "ca"}) {
        settings params = tls("a");
        for (auto &setting : params)
            if (setting.key == key) setting.value = files().file("missing.pem");
        wire_host host(params);
        const auto refused = host.open();
        REQUIRE(!refused.ok());
        CHECK(has(refused.failure().text, "missing.pem"));
        CHECK(has(refused.failure().text, key));
        for (auto &setting : params)
            if (setting.key == key) setting.value = std::string();
        wire_host without(params);
        const auto none = without.open();
        REQUIRE(!none.ok());
        CHECK(has(none.failure().text, (std::string("needs ") + key).c_str()));
    }
    settings locked = tls("a");
    locked[2].value = files().file("a.locked.key");
    wire_host asks_nobody(locked);
    const auto unread = asks_nobody.open();
    REQUIRE(!unread.ok());
    CHECK(has(unread.failure().text, "a.locked.key cannot be used: it has a passphrase"));
    settings params = tls("a");
    params[2].value = files().file("b.key");  // of another certificate
    wire_host host(params);
    const auto refused = host.open();
    REQUIRE(!refused.ok());
    CHECK(has(refused.failure().text, "b.key"));
    for (size_t i = 40; i + 16 < secret.size(); i += 16)
        CHECK(!has(refused.failure().text, secret.substr(i, 16).c_str()));
}

TEST_CASE("the conformance kit passes tcp through TLS") {
    const std::filesystem::path build = MOORAGE_BINARY_DIR;
    std::string command = "'" + (build / "bin/moorage").string() + "' plugins check '" +
                          (build / "plugins/wire/tcp.so").string() + "' --timeout 60";
    for (const auto &setting : tls("a"))
        command +=
            " --param 'wire." + setting.key + "=" + std::get<std::string>(setting.value) + "'";
    const int state = std::system((command + " > /dev/null").c_str());
    CHECK(WIFEXITED(state));
    CHECK(WEXITSTATUS(state) == 0);
}

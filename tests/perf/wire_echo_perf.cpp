// wire_echo_perf.cpp - round trips between two processes over loopback: the tcp wire, sleeping and
// polling, in the clear and through TLS, and ucx (shared memory) where it is built, beside a bare
// blocking socket in the same run.
//
//   bin/wire_echo_perf [trips]
//   bin/wire_echo_perf listen ADDRESS        the rate of a link: one takes in what comes,
//   bin/wire_echo_perf send ADDRESS [s]      another sends 64 KiB messages and prints MBit/s
//
// Both processes are pinned, to two processors where there are two. The forms take turns in rounds,
// so that a machine of varying speed treats them alike. A round trip lasts from send to the message
// that comes back. Prints the median and the 99th percentile over all rounds in microseconds.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/host/instance.h"
#include "core/host/registry.h"
#include "tests/plugin/wire_certificates.h"

namespace {

using namespace moorage;
using core::settings;

[[noreturn]] void give_up(const std::string &text) {
    std::fprintf(stderr, "wire_echo_perf: %s\n", text.c_str());
    std::exit(1);
}

// Pins to one of the program's processors. Its children know them too.
void pin(int wanted) {
    static const std::vector<int> processors = [] {
        cpu_set_t allowed;
        sched_getaffinity(0, sizeof(allowed), &allowed);
        std::vector<int> numbers;
        for (int i = 0; i < CPU_SETSIZE; ++i)
            if (CPU_ISSET(i, &allowed)) numbers.push_back(i);
        return numbers;
    }();
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    CPU_SET(processors[static_cast<size_t>(wanted) % processors.size()], &chosen);
    sched_setaffinity(0, sizeof(chosen), &chosen);
}

// One end of a conversation of messages of equal length.
class end {
public:
    virtual ~end() = default;
    virtual std::string listen() = 0;
    virtual void connect(const std::string &address) = 0;
    virtual bool echo() = 0;  // until the peer is gone
    virtual void trip(const std::vector<char> &bytes) = 0;
};

class bare_end final : public end {
public:
    explicit bare_end(size_t bytes) : room_(bytes) {}
    ~bare_end() override {
        for (const int descriptor : {socket_, listener_})
            if (descriptor >= 0) ::close(descriptor);
    }
    std::string listen() override {
        listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in bound = loopback(0);
        socklen_t bytes = sizeof(bound);
        if (::bind(listener_, reinterpret_cast<sockaddr *>(&bound), sizeof(bound)) != 0 ||
            ::listen(listener_, 1) != 0)
            give_up("cannot listen");
        ::getsockname(listener_, reinterpret_cast<sockaddr *>(&bound), &bytes);
        return std::to_string(ntohs(bound.sin_port));
    }
    void connect(const std::string &address) override {
        socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
        const sockaddr_in target = loopback(static_cast<uint16_t>(std::stoi(address)));
        if (::connect(socket_, reinterpret_cast<const sockaddr *>(&target), sizeof(target)) != 0)
            give_up("cannot connect");
        disable_delay();
    }
    bool echo() override {
        socket_ = ::accept(listener_, nullptr, nullptr);
        disable_delay();
        while (receive()) send(room_);
        return true;
    }
    void trip(const std::vector<char> &bytes) override {
        send(bytes);
        if (!receive()) give_up("the other process is gone");
    }

private:
    static sockaddr_in loopback(uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        return address;
    }
    void disable_delay() const {
        const int enabled = 1;
        ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof(enabled));
    }
    void send(const std::vector<char> &bytes) const {
        for (size_t gone = 0; gone < bytes.size();)
            gone += static_cast<size_t>(std::max<ssize_t>(
                0, ::send(socket_, bytes.data() + gone, bytes.size() - gone, MSG_NOSIGNAL)));
    }
    bool receive() {
        for (size_t received = 0; received < room_.size();) {
            const ssize_t got =
                ::recv(socket_, room_.data() + received, room_.size() - received, 0);
            if (got <= 0) return false;
            received += static_cast<size_t>(got);
        }
        return true;
    }
    std::vector<char> room_;
    int socket_ = -1, listener_ = -1;
};

class wire_end final : public end {
public:
    wire_end(const char *plugin, const settings &params) {
        if (const auto done = known_.scan(std::vector{file_of(plugin)}); !done)
            give_up(done.failure().text);
        auto created = core::instance::create(**known_.find(plugin, "wire"), params, {});
        if (!created) give_up(created.failure().text);
        wire_ = std::move(*created);
        moorage_limits nothing{};
        nothing.size = sizeof(nothing);
        moorage_wire_limits limits{};
        limits.size = sizeof(limits);
        limits.connections_max = limits.handshakes_max = limits.handshakes_per_s = 4;
        limits.queue_messages_max = 16;
        limits.message_bytes_max[0] = limits.message_bytes_max[1] = 1 << 20;
        limits.queue_bytes_max = limits.receive_bytes_max = 4 << 20;
        limits.connect_ns = limits.close_ns = 5'000'000'000;
        if (!wire_->activate(nothing)) give_up("cannot activate");
        const auto opened = wire_->control(core::entry_point::wire_open, [&](moorage_plugin *p) {
            return wire_->wire->open(p, &limits);
        });
        if (!opened) give_up(opened.failure().text);
    }
    static std::filesystem::path file_of(const std::string &plugin) {
        return std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins/wire" / (plugin + ".so");
    }
    std::string listen() override { return listen_at("127.0.0.1:0"); }
    std::string listen_at(const char *address) {
        char bound[MOORAGE_WIRE_ADDRESS_MAX];
        uint64_t listener = 0;
        if (wire_->wire->listen(wire_->plugin(), address, bound, &listener) != MOORAGE_OK)
            give_up("cannot listen");
        return bound;
    }
    // Receives until the sender is gone.
    void drain_messages() {
        for (;;) {
            const moorage_wire_event event = next();
            if (event.kind == MOORAGE_WIRE_CLOSED) return;
            if (event.kind == MOORAGE_WIRE_MESSAGE) release(event.message);
        }
    }
    // MBit/s of the bytes that the wire has taken. It holds no more than its queue.
    double rate(double seconds) {
        const std::vector<char> message(64 << 10, 'm');
        const moorage_wire_part part{message.data(), message.size(), 0};
        const auto begin = std::chrono::steady_clock::now();
        double passed = 0, bytes = 0;
        while (passed < seconds) {
            const uint32_t did = wire_->call(core::entry_point::wire_send, wire_->wire->send,
                                             connection_, &part, 1u, uint64_t{0});
            if (did <= MOORAGE_WIRE_TAKEN)
                bytes += static_cast<double>(message.size());
            else if (did == MOORAGE_WIRE_FULL)
                next();
            else
                give_up("a message is not taken");
            passed =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        }
        return bytes * 8 / passed / 1e6;
    }
    void connect(const std::string &address) override {
        const char *text = address.c_str();
        const moorage_wire_target target{sizeof(target), MOORAGE_WIRE_CALLS, &text, 1, 0, nullptr};
        if (wire_->wire->connect(wire_->plugin(), &target, &connection_) != MOORAGE_OK)
            give_up("cannot connect");
        if (next().kind != MOORAGE_WIRE_CONNECTED) give_up("not connected");
    }
    bool echo() override {
        for (;;) {
            const moorage_wire_event event = next();
            if (event.kind == MOORAGE_WIRE_CLOSED) return true;
            if (event.kind == MOORAGE_WIRE_SENT) release(event.user);
            if (event.kind != MOORAGE_WIRE_MESSAGE) continue;
            connection_ = event.connection;
            if (send(event.plugin_data, event.bytes, event.message) == MOORAGE_WIRE_DONE)
                release(event.message);
        }
    }
    void trip(const std::vector<char> &bytes) override {
        send(bytes.data(), bytes.size(), 0);
        moorage_wire_event event = next();
        while (event.kind != MOORAGE_WIRE_MESSAGE) event = next();
        release(event.message);
    }

private:
    moorage_wire_event next() {
        moorage_wire_event event{};
        while (wire_->call(core::entry_point::wire_poll, wire_->wire->poll, &event, 1u,
                           uint64_t{1'000'000'000}) == 0) {
        }
        return event;
    }
    uint32_t send(const void *data, uint64_t bytes, uint64_t user) {
        const moorage_wire_part part{data, bytes, 0};
        const uint32_t did = wire_->call(core::entry_point::wire_send, wire_->wire->send,
                                         connection_, &part, 1u, user);
        if (did > MOORAGE_WIRE_TAKEN) give_up("a message is not taken");
        return did;
    }
    void release(uint64_t message) { wire_->wire->release(wire_->plugin(), message); }

    core::registry known_;
    std::unique_ptr<core::instance> wire_;
    uint64_t connection_ = 0;
};

struct form {
    const char *name;
    const char *plugin;  // null: none
    settings params;
};

std::unique_ptr<end> make(const form &variant, size_t bytes) {
    if (variant.plugin) return std::make_unique<wire_end>(variant.plugin, variant.params);
    return std::make_unique<bare_end>(bytes);
}

// Round trips of one form, in nanoseconds, with another process of its own.
void measure(const form &variant, size_t bytes, int trips, std::vector<double> &trip_us) {
    int way[2];
    if (::pipe(way) != 0) give_up("no pipe");
    const pid_t child = ::fork();
    if (child == 0) {
        pin(1);
        const auto far = make(variant, bytes);
        const std::string address = far->listen() + "\n";
        if (::write(way[1], address.data(), address.size()) < 0) ::_exit(1);
        far->echo();
        ::_exit(0);
    }
    std::string address;
    for (char c = 0; ::read(way[0], &c, 1) == 1 && c != '\n';) address.push_back(c);
    ::close(way[0]), ::close(way[1]);
    auto near = make(variant, bytes);
    near->connect(address);
    const std::vector<char> message(bytes, 'm');
    for (int i = 0; i < trips / 10 + 20; ++i) near->trip(message);
    for (int i = 0; i < trips; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        near->trip(message);
        const auto took = std::chrono::steady_clock::now() - begin;
        trip_us.push_back(std::chrono::duration<double, std::micro>(took).count());
    }
    near.reset();
    int state = 0;
    ::waitpid(child, &state, 0);
}

// The rate of a link between two machines, or namespaces.
int measure_rate(int count, char **words) {
    wire_end wire("tcp", {{"poll_us", int64_t{0}, "here"}, {"open_network", true, "here"}});
    if (std::string(words[1]) == "listen") {
        wire.listen_at(words[2]);
        wire.drain_messages();
        return 0;
    }
    wire.connect(words[2]);
    std::printf("%.1f\n", wire.rate(count > 3 ? std::atof(words[3]) : 3));
    return 0;
}

}  // namespace

int main(int count, char **words) {
    if (count > 2) return measure_rate(count, words);
    const int trips = count > 1 ? std::atoi(words[1]) : 2000, rounds = 5;
    test::certificate_folder files;
    files.write("node", test::certify("DNS:node", &files.authority));
    const settings sleeping{{"poll_us", int64_t{0}, "here"}},
        polling{{"poll_us", int64_t{1000}, "here"}};
    const auto tls = [&](settings params) {
        params.push_back({"security", std::string("tls"), "here"});
        params.push_back({"certificate", files.file("node.pem"), "here"});
        params.push_back({"key", files.file("node.key"), "here"});
        params.push_back({"ca", files.file("ca.pem"), "here"});
        return params;
    };
    std::vector<form> forms = {{"bare socket, blocking", nullptr, {}},
                               {"tcp, sleeping", "tcp", sleeping},
                               {"tcp, polling", "tcp", polling},
                               {"tcp with TLS, sleeping", "tcp", tls(sleeping)},
                               {"tcp with TLS, polling", "tcp", tls(polling)}};
    if (std::filesystem::exists(wire_end::file_of("ucx"))) {
        forms.push_back({"ucx, sleeping", "ucx", sleeping});
        forms.push_back({"ucx, polling", "ucx", polling});
    }
    pin(0);
    std::printf("%-24s %10s %10s %10s\n", "round trip, us", "bytes", "p50", "p99");
    for (const size_t bytes : {size_t{64}, size_t{8256}, size_t{131072}}) {
        std::vector<std::vector<double>> took(forms.size());
        for (int round = 0; round < rounds; ++round)
            for (size_t i = 0; i < forms.size(); ++i)
                measure(forms[i], bytes, trips / rounds, took[i]);
        for (size_t i = 0; i < forms.size(); ++i) {
            std::sort(took[i].begin(), took[i].end());
            std::printf("%-24s %10zu %10.1f %10.1f\n", forms[i].name, bytes,
                        took[i][took[i].size() / 2], took[i][took[i].size() * 99 / 100]);
        }
        std::fflush(stdout);
    }
    return 0;
}

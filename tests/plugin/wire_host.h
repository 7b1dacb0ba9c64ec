// wire_host.h - drives a wire as a host does, and a plain socket that sends it anything.
#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/host/instance.h"
#include "core/host/registry.h"

namespace moorage::test {

inline moorage_wire_limits wire_limits() {
    moorage_wire_limits limits{};
    limits.size = sizeof(limits);
    limits.connections_max = 8, limits.handshakes_max = 8, limits.handshakes_per_s = 1000;
    limits.queue_messages_max = 100;
    limits.message_bytes_max[0] = limits.message_bytes_max[1] = 1 << 20;
    limits.queue_bytes_max = 1 << 20, limits.receive_bytes_max = 4 << 20;
    limits.connect_ns = 2'000'000'000, limits.close_ns = 1'000'000'000;
    return limits;
}

// An event with its texts and the bytes of a message. The message is released.
struct received_event {
    moorage_wire_event event{};
    std::string identity, address, words, bytes;
};

class wire_host {
public:
    // The bundled tcp.
    explicit wire_host(core::settings params = {}) {
        static core::registry known = [] {
            core::registry registry;
            const std::vector<std::filesystem::path> files = {
                std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins/wire/tcp.so"};
            REQUIRE(registry.scan(files).ok());
            return registry;
        }();
        auto created = core::instance::create(**known.find("tcp", "wire"), params, {});
        REQUIRE_MESSAGE(created.ok(), (created.ok() ? std::string() : created.failure().text));
        wire_ = std::move(*created);
        moorage_limits nothing{};
        nothing.size = sizeof(nothing);
        REQUIRE(wire_->activate(nothing).ok());
    }
    core::status open(const moorage_wire_limits &limits = wire_limits()) {
        return wire_->control(core::entry_point::wire_open, [&](moorage_plugin *plugin) {
            return wire_->wire->open(plugin, &limits);
        });
    }
    core::status listen(const std::string &bind_address = "127.0.0.1:0") {
        char bound[MOORAGE_WIRE_ADDRESS_MAX] = "";
        const auto done =
            wire_->control(core::entry_point::wire_listen, [&](moorage_plugin *plugin) {
                return wire_->wire->listen(plugin, bind_address.c_str(), bound, &listener);
            });
        address = bound;
        return done;
    }
    core::status connect(const std::string &peer_address, uint64_t &number,
                         const char *identity = nullptr) {
        const char *text = peer_address.c_str();
        const moorage_wire_target target{sizeof(target), MOORAGE_WIRE_CALLS, &text, 1, 0, identity};
        return wire_->control(core::entry_point::wire_connect, [&](moorage_plugin *plugin) {
            return wire_->wire->connect(plugin, &target, &number);
        });
    }
    uint32_t send(uint64_t connection, const std::string &bytes) {
        const moorage_wire_part part{bytes.data(), bytes.size(), 0};
        return wire_->wire->send(wire_->plugin(), connection, &part, 1, 1);
    }
    std::vector<received_event> poll(uint64_t wait_ns = 1'000'000) {
        moorage_wire_event events[16];
        const uint32_t count = wire_->wire->poll(wire_->plugin(), events, 16, wait_ns);
        std::vector<received_event> result;
        for (uint32_t i = 0; i < count; ++i) {
            result.push_back({events[i], events[i].plugin_identity, events[i].plugin_address,
                              events[i].plugin_text, ""});
            if (events[i].kind != MOORAGE_WIRE_MESSAGE) continue;
            result.back().bytes.assign(static_cast<const char *>(events[i].plugin_data),
                                       events[i].bytes);
            wire_->wire->release(wire_->plugin(), events[i].message);
        }
        return result;
    }
    // The next event of `kind`; earlier ones are dropped. Polls `meanwhile` too.
    received_event wait_for(int32_t kind, wire_host *meanwhile = nullptr) {
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
            if (meanwhile)
                for (received_event &received : meanwhile->poll())
                    meanwhile->kept_events.push_back(received);
            for (received_event &received : poll()) kept_events.push_back(received);
            while (!kept_events.empty()) {
                const received_event first = kept_events.front();
                kept_events.erase(kept_events.begin());
                if (first.event.kind == kind) return first;
            }
        }
        FAIL("no event of kind " << kind);
        return {};
    }
    core::instance &instance() { return *wire_; }

    std::string address;
    uint64_t listener = 0;
    std::vector<received_event> kept_events;

private:
    std::unique_ptr<core::instance> wire_;
};

// A client without manners. Blocking, with a limit of 5 s a call.
class rude_socket {
public:
    // `last_byte`: the last number of its address in the loopback network.
    explicit rude_socket(const std::string &address, uint32_t last_byte = 1) {
        const uint16_t port =
            static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
        sockaddr_in server{};
        server.sin_family = AF_INET;
        server.sin_port = htons(port);
        server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in local_address{};
        local_address.sin_family = AF_INET;
        local_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + last_byte);
        REQUIRE(::bind(descriptor, reinterpret_cast<sockaddr *>(&local_address),
                       sizeof(local_address)) == 0);
        const timeval limit{5, 0};
        ::setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        REQUIRE(::connect(descriptor, reinterpret_cast<sockaddr *>(&server), sizeof(server)) == 0);
    }
    ~rude_socket() { close(); }
    rude_socket(const rude_socket &) = delete;
    rude_socket &operator=(const rude_socket &) = delete;

    void say(const std::string &bytes) {
        CHECK(::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(bytes.size()));
    }
    // Up to `most` bytes, or those before the end.
    std::string hear(size_t most) {
        std::string text(most, '\0');
        size_t count = 0;
        while (count < most) {
            const ssize_t got = ::recv(descriptor, text.data() + count, most - count, 0);
            if (got <= 0) break;
            count += static_cast<size_t>(got);
        }
        text.resize(count);
        return text;
    }
    void close() {
        if (descriptor >= 0) ::close(descriptor);
        descriptor = -1;
    }
    void reset() {
        const linger at_once{1, 0};
        ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close();
    }
    int descriptor = -1;
};

// Frames of the tcp wire, written by hand after the head of plugins/wire/tcp/frame.hpp.
inline std::string frame_of(uint32_t length, char kind, const std::string &payload) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> 8 * i));
    bytes.push_back(kind);
    bytes.append(3, '\0');
    bytes += payload;
    while (bytes.size() % 8 != 0) bytes.push_back('\0');
    return bytes;
}
inline std::string message_frame(const std::string &payload) {
    return frame_of(static_cast<uint32_t>(payload.size()), 2, payload);
}
inline std::string hello_frame(char version = 1, uint64_t most = 1 << 20) {
    std::string payload = "moorwire";
    payload += {version, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < 8; ++i) payload.push_back(static_cast<char>(most >> 8 * i));
    return frame_of(24, 1, payload);
}

}  // namespace moorage::test
